/* A child with its own member asks for counters while its parent's counters are unread. Usage:
   counted DEVICE GROUP SENDER. 200 packets come. Prints the parent's counters after that. */
#include "scene.h"
#include <sys/wait.h>

enum { FRAMES = 200 };

static void count(u_char *packets, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)header;
	(void)bytes;
	++*(int *)packets;
}

/* Reads all frames. Does not wait by await_received(), because this function reads counters, and
   the kernel clears counters when they are read. */
static void read_all(pcap_t *p)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	time_t end = time(NULL) + 60;
	int packets = 0;

	if (pcap_setnonblock(p, 1, errbuf) != 0)
		fail("pcap_setnonblock", errbuf);
	while (packets < FRAMES && time(NULL) < end) {
		if (pcap_dispatch(p, -1, count, (u_char *)&packets) < 0)
			fail("pcap_dispatch", pcap_geterr(p));
	}
}

int main(int argc, char **argv)
{
	int status = -1;
	unsigned ps_recv;
	pcap_t *p;
	pid_t child;

	if (argc != 4)
		fail("usage", "counted DEVICE GROUP SENDER");
	p = opened(argv[1], atoi(argv[2]), "lb");
	send_frames(argv[3], FRAMES);
	read_all(p);
	child = fork();
	if (child == 0) {
		pcap_t *own = opened(argv[1], atoi(argv[2]), "lb");

		(void)fanout_stats(own);
		pcap_close(own);
		_exit(0);
	}
	waitpid(child, &status, 0);
	ps_recv = received(p);
	printf("child %d, ps_recv %u, received %llu of %d\n", status, ps_recv,
	       (unsigned long long)fanout_stats(p).received, FRAMES);
	pcap_close(p);
	return 0;
}
