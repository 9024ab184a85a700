/* A thread leaves the network namespace of its member. Usage: moves DEVICE GROUP SENDER MODE.
   Prints which counters are known, before and after the thread has left. */
#define _GNU_SOURCE
#include "scene.h"
#include <sched.h>

enum { FRAMES = 10 };

static void tell(const char *where, pcap_t *p)
{
	struct pcap_fanout_stat st = fanout_stats(p);

	printf("%s: received", where);
	if (st.valid & PCAP_FANOUT_STAT_RECEIVED)
		printf(" %llu", (unsigned long long)st.received);
	printf(", dropped");
	if (st.valid & PCAP_FANOUT_STAT_DROPPED)
		printf(" %llu", (unsigned long long)st.dropped);
	printf(", members");
	if (st.valid & PCAP_FANOUT_STAT_MEMBERS)
		printf(" %llu", (unsigned long long)st.members);
	puts(".");
}

int main(int argc, char **argv)
{
	pcap_t *p;

	if (argc != 5)
		fail("usage", "moves DEVICE GROUP SENDER MODE");
	p = opened(argv[1], atoi(argv[2]), argv[4]);
	send_frames(argv[3], FRAMES);
	await_received(p, NULL, FRAMES);
	tell("here", p);
	if (unshare(CLONE_NEWNET) != 0)
		fail("unshare", "failed");
	tell("elsewhere", p);
	pcap_close(p);
	return 0;
}
