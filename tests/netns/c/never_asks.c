/* A member that never asks for counters. Usage: never_asks DEVICE GROUP MODE BUFFER STALL_AT
   [immediate|poll|idle]. Prints "ready". After STALL_AT packets (0: never) prints "stalled" and
   reads no more. Prints "N packets" when it is interrupted. With `idle`, it reads nothing at all.
   BUFFER is in bytes; 0 is the library's default. GROUP may be - for the environment's group. */
#include "scene.h"
#include <poll.h>
#include <signal.h>

static pcap_t *p;
static unsigned long packets, stall_at;
static volatile sig_atomic_t stopped;

static void stop(int signal)
{
	(void)signal;
	stopped = 1;
	pcap_breakloop(p);
}

static void count(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	(void)header;
	(void)bytes;
	if (++packets == stall_at) {
		puts("stalled");
		for (;;)
			pause();
	}
}

/* Polls and reads, as a program with its own event loop does. */
static void poll_and_read(void)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	struct pollfd ring = { .fd = pcap_get_selectable_fd(p), .events = POLLIN };

	if (pcap_setnonblock(p, 1, errbuf) != 0)
		fail("pcap_setnonblock", errbuf);
	while (!stopped) {
		poll(&ring, 1, 50);
		if (pcap_dispatch(p, -1, count, NULL) == PCAP_ERROR)
			fail("pcap_dispatch", pcap_geterr(p));
	}
}

int main(int argc, char **argv)
{
	const char *how = argc == 7 ? argv[6] : "";

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 6)
		fail("usage", "never_asks DEVICE GROUP MODE BUFFER STALL_AT [immediate|poll|idle]");
	p = created(argv[1]);
	stall_at = strtoul(argv[5], NULL, 10);
	if (atoi(argv[4]) > 0)
		pcap_set_buffer_size(p, atoi(argv[4]));
	pcap_set_immediate_mode(p, strcmp(how, "immediate") == 0);
	if (strcmp(argv[2], "-") != 0 && pcap_fanout(p, atoi(argv[2]), argv[3]) != 0)
		fail("pcap_fanout", pcap_geterr(p));
	if (pcap_activate(p) < 0)
		fail("pcap_activate", pcap_geterr(p));
	signal(SIGINT, stop);
	puts("ready");
	while (strcmp(how, "idle") == 0 && !stopped)
		pause();
	if (strcmp(how, "poll") == 0)
		poll_and_read();
	else if (!stopped && pcap_loop(p, -1, count, NULL) == PCAP_ERROR)
		fail("pcap_loop", pcap_geterr(p));
	printf("%lu packets\n", packets);
	pcap_close(p);
	return 0;
}
