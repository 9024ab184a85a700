/* The any device: its two link types, all header fields, packets of several devices, both directions. */
#include <pcap/dlt.h>
#include "../wire.h"
#include "../pinned.h"

static void print_packet(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	printf("  %u of %u: ", header->caplen, header->len);
	print_bytes(bytes, header->caplen < 40 ? header->caplen : 40);
	printf("\n");
}

static void send_all(int wire, int back, int loopback)
{
	unsigned char frame[SMALLEST] = { 0 };
	send_numbered(wire, 1, 2);
	send_numbered(back, 100, 1);
	/* Frames to all hosts, and to another host. */
	header(frame, NUMBERED);
	memset(frame, 0xff, 6);
	send_frame(wire, frame, sizeof frame);
	frame[0] = 1;
	send_frame(wire, frame, sizeof frame);
	frame[0] = 6;
	send_frame(wire, frame, sizeof frame);
	/* A length instead of an Ethernet type: LLC. */
	header(frame, 46);
	memset(frame + HEADER, 0x42, 3);
	send_frame(wire, frame, sizeof frame);
	header(frame, 46);
	memset(frame + HEADER, 0xff, 3);
	send_frame(wire, frame, sizeof frame);
	header(frame, NUMBERED);
	send_frame(loopback, frame, sizeof frame);
}

enum { SENT = 8, EACH_TWICE = 2 * SENT };

int main(void)
{
	static const int links[] = { DLT_LINUX_SLL, DLT_LINUX_SLL2 };
	static const int snaplens[] = { 262144, 30, 10 };
	int wire = port_of(near), back = port_of(far), loopback = port_of("lo");
	stay_on_cpu();
	for (int i = 0; i < 12; i++) {
		int link = links[i % 2], snaplen = snaplens[i / 2 % 3], version = 2 + i / 6;
		pcap_t *p = created("any", version);
		pcap_set_snaplen(p, snaplen);
		/* A buffer that holds all packets, which may be long. */
		pcap_set_buffer_size(p, 32 << 20);
		activated(p);
		int rc = pcap_set_datalink(p, link);
		printf("version %d, link %d: %d %d, snaplen %d is %d\n", version, link, rc, pcap_datalink(p), snaplen,
		       pcap_snapshot(p));
		send_all(wire, back, loopback);
		settle(p, EACH_TWICE);
		printf(" -> %d\n", drain(p, print_packet, NULL));
		print_stats(p);
		pcap_close(p);
	}
	return 0;
}
