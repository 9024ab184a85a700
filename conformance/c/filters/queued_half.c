/* A filter that replaces another when half of the queued packets have been read. */
#include "../wire.h"

int main(void)
{
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		pcap_t *p = opened(far, version);
		send_numbered(port, 0, 20);
		settle(p, 20);
		printf("version %d:", version);
		printf(" -> %d,", pcap_dispatch(p, 7, print_number, NULL));
		filter(p, "ether[17] & 1 == 0");
		printf(" -> %d,", pcap_dispatch(p, 3, print_number, NULL));
		filter(p, "ether[17] & 3 == 0");
		send_numbered(port, 20, 8);
		settle(p, 22);
		printf(" -> %d\n", drain(p, print_number, NULL));
		/* After the ring has wrapped, no old packet may appear again. */
		filter(p, "");
		send_numbered(port, 50, 3);
		settle(p, 25);
		printf("  then:");
		printf(" -> %d\n", drain(p, print_number, NULL));
		print_stats(p);
		pcap_close(p);
	}
	return 0;
}
