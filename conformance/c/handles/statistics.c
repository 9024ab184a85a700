/* The statistics: totals since activation, only of packets that pass the filter, whether read or not. */
#include "../wire.h"

int main(void)
{
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		unsigned count = 0;
		pcap_t *p = created(far, version);
		pcap_set_promisc(p, version == 3);
		activated(p);
		printf("version %d\n", version);
		print_stats(p);
		send_numbered(port, 0, 10);
		settle(p, 10);
		print_stats(p);
		print_stats(p);
		printf("  read %d\n", drain(p, count_packet, &count));
		print_stats(p);
		filter(p, "ether[17] & 1 == 0");
		send_numbered(port, 0, 17);
		settle(p, 19);
		print_stats(p);
		printf("  read %d\n", drain(p, count_packet, &count));
		filter(p, "");
		send_numbered(port, 0, 1);
		settle(p, 20);
		print_stats(p);
		pcap_close(p);
	}
	return 0;
}
