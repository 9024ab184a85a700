/* A program that calls select() on f1^f2. Usage: merged_select blocking|nonblocking
   plain|immediate. With a blocking handle it reads one packet whenever the descriptor is
   readable. With a nonblocking handle it prints how often select() has woken it. */
#include "wires.h"
#include <sys/wait.h>

enum { TIMEOUT_MS = 20, PACKETS = 25, PAUSE_MS = 40, END_MS = 400 };

static int is_readable(pcap_t *p, int ms)
{
	struct pollfd fd = { .fd = pcap_get_selectable_fd(p), .events = POLLIN };

	return poll(&fd, 1, ms) > 0;
}

/* If the descriptor is readable but the read waits, the alarm ends the program. Then the last
   line of the output is missing, so the test fails. */
static void one_by_one(pcap_t *p, const int ports[2])
{
	unsigned count = 0, sent = 0;
	double longest = 0;

	/* Sends one packet, then two of one device while the other is silent, then three of both, then
	   one. */
	for (int step = 0; step < 4; step++) {
		for (int i = 0; i <= step % 3; i++, sent++)
			send_tag(ports[step < 2 ? 0 : i % 2], step);
		while (is_readable(p, count < sent ? 5000 : END_MS)) {
			double begin = now();

			if (pcap_dispatch(p, 1, count_packet, (u_char *)&count) < 0)
				fail("pcap_dispatch", pcap_geterr(p));
			if (now() - begin > longest)
				longest = now() - begin;
			if (count == sent && is_readable(p, 0))
				printf("readable after packet %u, the last\n", count);
		}
	}
	printf("%u of %u packets, waited %s\n", count, sent, longest < 1 ? "no" : "yes");
}

static void many(pcap_t *p, const int ports[2])
{
	unsigned count = 0, wakes = 0;
	double end = now() + PACKETS * PAUSE_MS / 1e3 + 60;

	if (fork() == 0) {
		for (int i = 0; i < PACKETS; i++) {
			send_tag(ports[0], i);
			sleep_ms(PAUSE_MS);
		}
		_exit(0);
	}
	while (now() < end && (count < PACKETS || is_readable(p, END_MS))) {
		if (!is_readable(p, 100))
			continue;
		wakes++;
		if (pcap_dispatch(p, -1, count_packet, (u_char *)&count) < 0)
			fail("pcap_dispatch", pcap_geterr(p));
	}
	wait(NULL);
	printf("%u packets, %u wake-ups\n", count, wakes);
}

int main(int argc, char **argv)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	int ports[2];
	pcap_t *p;

	if (argc != 3)
		fail("usage", "merged_select blocking|nonblocking plain|immediate");
	ports[0] = port_of("n1");
	ports[1] = port_of("n2");
	p = opened_how("f1^f2", argv[2], TIMEOUT_MS);
	if (strcmp(argv[1], "blocking") == 0) {
		one_by_one(p, ports);
	} else {
		if (pcap_setnonblock(p, 1, errbuf) != 0)
			fail("pcap_setnonblock", errbuf);
		many(p, ports);
	}
	pcap_close(p);
	return 0;
}
