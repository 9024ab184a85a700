/* A handle that its group refused joins another: retry DEVICE SENDER at-once|by-activation. Says what it
   then reads of 10 packets. */
#include "scene.h"

enum { TAKEN = 7, OTHER = 8, FRAMES = 10 };

static void count(u_char *packets, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)header;
	(void)bytes;
	++*(int *)packets;
}

static pcap_t *refused(const char *device)
{
	pcap_t *p = created(device);

	if (pcap_fanout(p, TAKEN, "lb") != 0)
		fail("pcap_fanout", pcap_geterr(p));
	if (pcap_activate(p) >= 0)
		fail("pcap_activate", "joined a group of another mode");
	return p;
}

static int read_all(pcap_t *p)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	time_t end = time(NULL) + 5;
	int packets = 0;

	if (pcap_setnonblock(p, 1, errbuf) != 0)
		fail("pcap_setnonblock", errbuf);
	while (packets < FRAMES && time(NULL) < end) {
		if (pcap_dispatch(p, -1, count, (u_char *)&packets) < 0)
			fail("pcap_dispatch", pcap_geterr(p));
	}
	return packets;
}

int main(int argc, char **argv)
{
	pcap_t *holder, *p;

	if (argc != 4)
		fail("usage", "retry DEVICE SENDER at-once|by-activation");
	holder = opened(argv[1], TAKEN, "hash");
	p = refused(argv[1]);
	if (pcap_fanout(p, OTHER, "lb") != 0)
		fail("pcap_fanout after a refusal", pcap_geterr(p));
	if (strcmp(argv[3], "by-activation") == 0 && pcap_activate(p) != 0)
		fail("pcap_activate after a refusal", pcap_geterr(p));
	send_frames(argv[2], FRAMES);
	printf("group %d, %d packets\n", pcap_fanout_group(p), read_all(p));
	pcap_close(p);
	pcap_close(holder);
	return 0;
}
