/* Shared by the programs on f1^f2: frames that they send themselves on n1 and n2, the other ends of
   the wires. */
#include "scene.h"
#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <linux/if_packet.h>
#include <sys/socket.h>

enum { TAG_AT = 14, SMALLEST = 60, LIMIT_SECONDS = 60 };

/* Ends a program that hangs. Buffers the output by lines, so that its output until then is not
   lost. */
__attribute__((constructor)) static void limit(void)
{
	alarm(LIMIT_SECONDS);
	setvbuf(stdout, NULL, _IOLBF, 0);
}

static inline double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static inline void sleep_ms(int ms)
{
	poll(NULL, 0, ms);
}

/* Opens a socket that sends on DEVICE and receives nothing. */
static inline int port_of(const char *device)
{
	struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex(device) };
	int port = socket(AF_PACKET, SOCK_RAW, 0);

	if (port < 0 || bind(port, (struct sockaddr *)&to, sizeof(to)) != 0)
		fail(device, strerror(errno));
	return port;
}

/* Sends a frame whose first byte after the header is TAG. */
static inline void send_tag(int port, int tag)
{
	unsigned char frame[SMALLEST] = { 2, 0, 0, 0, 0, 0x0b, 2, 0, 0, 0, 0, 0x0a, 0x88, 0xb5 };

	frame[TAG_AT] = (unsigned char)tag;
	if (send(port, frame, sizeof(frame), 0) != (ssize_t)sizeof(frame))
		fail("send", strerror(errno));
}

static inline void print_tag(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	(void)header;
	printf(" %d", bytes[TAG_AT]);
}

static inline void count_packet(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)header;
	(void)bytes;
	++*(unsigned *)user;
}

/* Opens a handle on both devices, in immediate mode if HOW says so. */
static inline pcap_t *opened_how(const char *devices, const char *how, int timeout_ms)
{
	pcap_t *p = created(devices);

	pcap_set_timeout(p, timeout_ms);
	pcap_set_immediate_mode(p, strcmp(how, "immediate") == 0);
	if (pcap_activate(p) != 0)
		fail("pcap_activate", pcap_geterr(p));
	return p;
}
