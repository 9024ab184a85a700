/* A member that prints its group's sums. Usage: sums DEVICE GROUP MODE OWN. At each SIGUSR1 it
   waits until it has received OWN packets itself, and prints the counters that it knows. SIGINT
   ends it. */
#include "scene.h"
#include <signal.h>

int main(int argc, char **argv)
{
	const uint32_t sums = PCAP_FANOUT_STAT_GROUP_RECEIVED | PCAP_FANOUT_STAT_GROUP_DROPPED;
	sigset_t signals;
	int signal;
	pcap_t *p;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc != 5)
		fail("usage", "sums DEVICE GROUP MODE OWN");
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	sigaddset(&signals, SIGINT);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	p = opened(argv[1], atoi(argv[2]), argv[3]);
	puts("ready");
	for (int round = 1; sigwait(&signals, &signal) == 0 && signal == SIGUSR1; round++) {
		struct pcap_fanout_stat st;

		await_received(p, NULL, (unsigned)strtoul(argv[4], NULL, 10));
		st = fanout_stats(p);
		printf("round %d: received %llu, ", round, (unsigned long long)st.received);
		if ((st.valid & sums) == sums)
			printf("the group %llu\n", (unsigned long long)st.group_received);
		else
			printf("the group unknown (%#x)\n", st.valid & sums);
	}
	pcap_close(p);
	return 0;
}
