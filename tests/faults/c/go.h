/* One run of an operation: its result, and the checks of the result that all operations need. */
#ifndef go_h
#define go_h

#include "fault.h"
#include "wire.h"

#include <stdarg.h>
#include <string.h>
#include <pcap/fanout.h>

/* The program also runs with the system's library, which has none of these functions. */
#pragma weak pcap_fanout
#pragma weak pcap_fanout_group
#pragma weak pcap_fanout_stats

/* The rings are small, because the test makes some thousand runs, and the kernel clears a ring
   for each run. */
enum { TIMEOUT_MS = 10, RING_BYTES = 1 << 20 };

static const char *device;
static int group = -1;

/* One run of the operation. */
struct go {
	struct fault *fault;
	/* The status that the operation returned. If it is negative, the operation failed, with
	   a message. */
	int status;
	char message[PCAP_ERRBUF_SIZE];
	/* The errors in the result, in words. */
	char wrong[512];
};

__attribute__((format(printf, 2, 3)))
static void wrong(struct go *go, const char *format, ...)
{
	size_t len = strlen(go->wrong);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(go->wrong + len, sizeof(go->wrong) - len, format, arguments);
	va_end(arguments);
	strncat(go->wrong, " ", sizeof(go->wrong) - strlen(go->wrong) - 1);
}

static void keep_message(struct go *go, const char *message)
{
	snprintf(go->message, sizeof(go->message), "%s", message);
	for (char *at = go->message; (at = strpbrk(at, "\t\n")) != NULL;)
		*at = ' ';
}

static void give_up(const char *what, const char *why)
{
	printf("%s without a failure: %s\n", what, why);
	exit(2);
}

static pcap_t *created(void)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	pcap_t *p = pcap_create(device, errbuf);

	if (p == NULL)
		give_up("pcap_create", errbuf);
	pcap_set_timeout(p, TIMEOUT_MS);
	pcap_set_buffer_size(p, RING_BYTES);
	return p;
}

/* Opens a handle for an operation on an open handle. No failure is requested yet. */
static pcap_t *opened(void)
{
	pcap_t *p = created();

	if (group >= 0 && pcap_fanout(p, group, "lb") != 0)
		give_up("pcap_fanout", pcap_geterr(p));
	if (pcap_activate(p) < 0)
		give_up("pcap_activate", pcap_geterr(p));
	return p;
}

/* Checks an activated handle: it receives every frame once, and it is in the right group. */
static void check_works(struct go *go, pcap_t *p)
{
	struct seen seen = { 0, 0 };

	send_frames(OURS, FRAMES);
	read_frames(p, &seen);
	if (seen.ours != FRAMES || seen.others != 0)
		wrong(go, "reads-%d-of-%d", seen.ours + seen.others, FRAMES);
	if (group >= 0 && pcap_fanout_group(p) != group)
		wrong(go, "in-group-%d", pcap_fanout_group(p));
}

#endif
