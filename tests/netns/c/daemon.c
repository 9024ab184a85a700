/* A member that continues in a child, as in daemons. Usage: daemon DEVICE GROUP MODE COUNT. The
   parent opens the handle, prints "ready" and waits to be killed. The child reads COUNT packets,
   prints "child has N packets" and ends without closing the handle. */
#include "scene.h"

static unsigned long packets;

static void count(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	(void)header;
	(void)bytes;
	packets++;
}

int main(int argc, char **argv)
{
	unsigned long most;
	pcap_t *p;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc != 5)
		fail("usage", "daemon DEVICE GROUP MODE COUNT");
	p = opened(argv[1], atoi(argv[2]), argv[3]);
	most = strtoul(argv[4], NULL, 10);
	if (fork() > 0) {
		puts("ready");
		pause();
		return 0;
	}
	while (packets < most) {
		if (pcap_dispatch(p, (int)(most - packets), count, NULL) == PCAP_ERROR)
			fail("pcap_dispatch", pcap_geterr(p));
	}
	printf("child has %lu packets\n", packets);
	_exit(0);
}
