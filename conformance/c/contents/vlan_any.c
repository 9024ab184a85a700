/* VLAN tags on the any device, with either of its link types. */
#include <pcap/dlt.h>
#include "../wire.h"
#include "../tags.h"

static void print_packet(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	const struct tagging **tagging = (const struct tagging **)user;
	printf("  %u of %u, %s: ", header->caplen, header->len, (*tagging)->name);
	print_bytes(bytes, header->caplen < 44 ? header->caplen : 44);
	printf("\n");
	++*tagging;
}

int main(void)
{
	static const struct {
		int link, snaplen;
	} cases[] = { { DLT_LINUX_SLL, 262144 }, { DLT_LINUX_SLL2, 262144 }, { DLT_LINUX_SLL, 30 }, { DLT_LINUX_SLL2, 30 } };
	int port = port_of(near);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const struct tagging *next = taggings;
		pcap_t *p = created("any", 3);
		pcap_set_snaplen(p, cases[i].snaplen);
		activated(p);
		printf("link %d: %d, snaplen %d\n", cases[i].link, pcap_set_datalink(p, cases[i].link),
		       cases[i].snaplen);
		pcap_setdirection(p, PCAP_D_IN);
		for (int tag = 0; tag < TAGGINGS; tag++)
			send_tagged(port, &taggings[tag], 60);
		settle(p, 2 * TAGGINGS);
		drain(p, print_packet, &next);
		pcap_close(p);
	}
	return 0;
}
