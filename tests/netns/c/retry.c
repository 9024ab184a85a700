/* A handle that one group refused joins another group. Usage: retry DEVICE SENDER
   at-once|by-activation [FILTER]. Prints how many of 10 packets the handle reads after its join.
   If there is a FILTER, it is set between the two joins, and many packets that it rejects come
   before the 10 packets. */
#include "scene.h"

/* The other packets must fill blocks of the ring, because libpcap itself filters the first
   packets after a new filter. */
enum { TAKEN = 7, OTHER = 8, FRAMES = 10, OTHER_FRAMES = 3000 };

struct packets {
	int ours, others;
};

static void count(u_char *packets, const struct pcap_pkthdr *header, const u_char *bytes)
{
	int ours = header->caplen > 13 && (bytes[12] << 8 | bytes[13]) == OURS;

	((struct packets *)packets)->ours += ours;
	((struct packets *)packets)->others += !ours;
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

static struct packets read_all(pcap_t *p)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	time_t end = time(NULL) + 60;
	struct packets packets = { 0 };

	if (pcap_setnonblock(p, 1, errbuf) != 0)
		fail("pcap_setnonblock", errbuf);
	while (packets.ours < FRAMES && time(NULL) < end) {
		if (pcap_dispatch(p, -1, count, (u_char *)&packets) < 0)
			fail("pcap_dispatch", pcap_geterr(p));
	}
	return packets;
}

int main(int argc, char **argv)
{
	pcap_t *holder, *p;
	struct packets packets;

	if (argc != 4 && argc != 5)
		fail("usage", "retry DEVICE SENDER at-once|by-activation [FILTER]");
	holder = opened(argv[1], TAKEN, "hash");
	p = refused(argv[1]);
	if (argc > 4)
		set_filter(p, argv[4]);
	if (pcap_fanout(p, OTHER, "lb") != 0)
		fail("pcap_fanout after a refusal", pcap_geterr(p));
	if (strcmp(argv[3], "by-activation") == 0 && pcap_activate(p) != 0)
		fail("pcap_activate after a refusal", pcap_geterr(p));
	if (argc > 4)
		send_frames_of(argv[2], OTHERS, OTHER_FRAMES);
	send_frames(argv[2], FRAMES);
	packets = read_all(p);
	printf("group %d, %d packets, %d others\n", pcap_fanout_group(p), packets.ours, packets.others);
	pcap_close(p);
	pcap_close(holder);
	return 0;
}
