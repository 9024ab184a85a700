/* A handle that joins while packets wait in its ring. Usage: joins_late DEVICE GROUP SENDER. 100
   packets come before the join and 50 after it. The program reads all of them when it gets SIGUSR1.
   */
#include "scene.h"
#include <signal.h>

enum { BEFORE = 100, AFTER = 50 };

static void count(u_char *packets, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)header;
	(void)bytes;
	if (++*(int *)packets == BEFORE + AFTER)
		printf("read %d\n", BEFORE + AFTER);
}

int main(int argc, char **argv)
{
	sigset_t signals;
	int signal, packets = 0;
	pcap_t *p;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc != 4)
		fail("usage", "joins_late DEVICE GROUP SENDER");
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	p = opened(argv[1], 0, NULL);
	send_frames(argv[3], BEFORE);
	await_received(p, NULL, BEFORE);
	if (pcap_fanout(p, atoi(argv[2]), "hash") != 0)
		fail("pcap_fanout", pcap_geterr(p));
	send_frames(argv[3], AFTER);
	await_received(p, NULL, BEFORE + AFTER);
	puts("joined");
	sigwait(&signals, &signal);
	for (;;) {
		if (pcap_dispatch(p, -1, count, (u_char *)&packets) < 0)
			fail("pcap_dispatch", pcap_geterr(p));
	}
}
