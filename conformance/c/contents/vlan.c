/* VLAN tags, which the kernel takes out of received frames, are put back: 802.1Q, 802.1ad, stacked, VID 0. */
#include "../wire.h"
#include "../tags.h"

static void print_packet(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	const struct tagging **tagging = (const struct tagging **)user;
	printf("  %u of %u, %s: ", header->caplen, header->len, (*tagging)->name);
	print_bytes(bytes, header->caplen < 34 ? header->caplen : 34);
	printf(" .. %02x\n", bytes[header->caplen - 1]);
	++*tagging;
}

static void read_all(const char *how, int version, int snaplen, const char *expression, int port, const char *device)
{
	const struct tagging *next = taggings;
	pcap_t *p = created(device, version);
	pcap_set_snaplen(p, snaplen);
	activated(p);
	printf("%s, version %d, snaplen %d, filter %s\n", how, version, snaplen, expression ? expression : "none");
	if (expression)
		filter(p, expression);
	for (int i = 0; i < TAGGINGS; i++)
		send_tagged(port, &taggings[i], 100);
	settle(p, TAGGINGS);
	drain(p, print_packet, &next);
	pcap_close(p);
}

int main(void)
{
	static const int snaplens[] = { 262144, 96, 16, 15, 14, 13, 12 };
	int in = port_of(near), out = port_of(far);
	for (int version = 2; version <= 3; version++) {
		read_all("received", version, 262144, NULL, in, far);
		read_all("received", version, 96, "greater 20", in, far);
		read_all("sent", version, 96, NULL, out, far);
	}
	for (size_t i = 0; i < sizeof snaplens / sizeof snaplens[0]; i++) {
		read_all("received", 3, snaplens[i], NULL, in, far);
		read_all("received", 3, snaplens[i], "ether host 2:0:0:0:0:b", in, far);
	}
	return 0;
}
