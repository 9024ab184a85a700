/* A thread makes one call with a cancellation pending, then reaches a cancellation point. Usage:
   cancelled CALL. Prints a message only if the thread was not cancelled, or if the library can't
   open a handle after that. If the library hangs, an alarm ends the program.
 */
#include <pcap/pcap.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LIMIT_SECONDS = 60 };

static void create(pcap_t *none)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	(void)none;
	(void)pcap_create("lo", errbuf);
}

static void lib_version(pcap_t *none)
{
	(void)none;
	(void)pcap_lib_version();
}

static void set_snaplen(pcap_t *p)
{
	(void)pcap_set_snaplen(p, 96);
}

static void activate(pcap_t *p)
{
	(void)pcap_activate(p);
}

static void stats(pcap_t *p)
{
	struct pcap_stat stat;
	(void)pcap_stats(p, &stat);
}

/* Without traffic and without a timeout, the call waits for ever unless the cancellation ends it.
   */
static void next_ex(pcap_t *p)
{
	struct pcap_pkthdr *header;
	const u_char *bytes;
	(void)pcap_next_ex(p, &header, &bytes);
}

static const struct call {
	const char *name;
	/* The handle that the call needs. The first call of a process does more than later
	   calls. Calls with NO_HANDLE are tested as first calls, so the program opens no handle
	   before them. */
	enum { NO_HANDLE, CREATED, ACTIVE } needs;
	void (*make)(pcap_t *p);
} calls[] = {
	{ "pcap_create", NO_HANDLE, create },
	{ "pcap_lib_version", NO_HANDLE, lib_version },
	{ "pcap_set_snaplen", CREATED, set_snaplen },
	{ "pcap_activate", CREATED, activate },
	{ "pcap_next_ex", ACTIVE, next_ex },
	{ "pcap_stats", ACTIVE, stats },
	{ "pcap_close", ACTIVE, pcap_close },
};

static pcap_t *handle(int active)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	pcap_t *p = pcap_create("lo", errbuf);
	if (!p || (active && pcap_activate(p) < 0)) {
		printf("no handle: %s\n", p ? pcap_geterr(p) : errbuf);
		_exit(1);
	}
	return p;
}

static void *with_cancellation_pending(void *argument)
{
	const struct call *call = argument;
	pcap_t *p = call->needs == NO_HANDLE ? NULL : handle(call->needs == ACTIVE);
	pthread_cancel(pthread_self());
	call->make(p);
	pthread_testcancel();
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	void *result = NULL;
	size_t i = 0;
	while (argc == 2 && i < sizeof calls / sizeof calls[0] && strcmp(calls[i].name, argv[1]))
		i++;
	if (argc != 2 || i == sizeof calls / sizeof calls[0])
		return 2;
	alarm(LIMIT_SECONDS);
	if (pthread_create(&thread, NULL, with_cancellation_pending, (void *)&calls[i]))
		return 3;
	pthread_join(thread, &result);
	if (result != PTHREAD_CANCELED)
		puts("the thread was not cancelled");
	/* Opens and closes another handle, which would hang if the cancelled thread still held a
	   lock. */
	pcap_close(handle(1));
	return 0;
}
