/* A handle for one ethertype only. */
#include "../wire.h"
#include "../tags.h"

static void print_packet(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	printf(" %u:%02x%02x", header->len, bytes[12], bytes[13]);
}

int main(void)
{
	static const int protocols[] = { 0x88b5, 0x0800, 0x8100, 0, 3 };
	int in = port_of(near), out = port_of(far);
	for (int version = 2; version <= 3; version++) {
		for (int i = 0; i < 5; i++) {
			pcap_t *p = created(far, version);
			printf("version %d, protocol %x: %d", version, protocols[i],
			       pcap_set_protocol_linux(p, protocols[i]));
			activated(p);
			send_numbered(in, 0, 2);
			send_numbered(out, 0, 2);
			send_tagged(in, &taggings[0], 100);
			send_tagged(in, &taggings[1], 100);
			sleep_ms(settled());
			printf(" -> %d\n", drain(p, print_packet, NULL));
			print_stats(p);
			pcap_close(p);
		}
	}
	return 0;
}
