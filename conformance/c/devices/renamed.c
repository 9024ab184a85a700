/* A device that is renamed while its handle is open: packets still arrive. */
#include "../wire.h"

int main(void)
{
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		const char *name = version == 2 ? far : "renamed";
		pcap_t *p = opened(name, version);
		send_numbered(port, 0, 2);
		settle(p, 2);
		if (version == 2 && system("ip link set vb name renamed || ip link set vb down name renamed && ip link set renamed up"))
			printf("not renamed\n");
		send_until(port, p, 3);
		settle(p, 3);
		printf("version %d:", version);
		printf(" -> %d\n", drain(p, print_number, NULL));
		filter(p, "ether[17] & 1 == 1");
		send_numbered(port, 10, 4);
		settle(p, 5);
		printf("  then:");
		printf(" -> %d\n", drain(p, print_number, NULL));
		print_stats(p);
		pcap_close(p);
	}
	return 0;
}
