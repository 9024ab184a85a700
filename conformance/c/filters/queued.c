/* A filter that replaces another while packets are queued: the new filter is applied to the queued packets. */
#include "../wire.h"

static void replace(int port, int version, const char *first, const char *second)
{
	pcap_t *p = opened(far, version);
	if (first)
		filter(p, first);
	for (unsigned i = 0; i < 20; i++)
		send_numbered(port, i, 1);
	settle(p, first ? 10 : 20);
	filter(p, second);
	for (unsigned i = 20; i < 30; i++)
		send_numbered(port, i, 1);
	settle(p, first ? 15 : 25);
	printf("version %d, %s, then %s:", version, first ? first : "none", second);
	printf(" -> %d\n", drain(p, print_number, NULL));
	print_stats(p);
	/* Only the kernel filters later packets. */
	unsigned before = received(p);
	send_numbered(port, 30, 4);
	settle(p, before + 2);
	printf("  later:");
	printf(" -> %d\n", drain(p, print_number, NULL));
	pcap_close(p);
}

int main(void)
{
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		replace(port, version, NULL, "ether[17] & 1 == 0");
		replace(port, version, "ether[17] & 1 == 0", "ether[17] & 2 == 0");
		replace(port, version, "ether[17] & 1 == 0", "ether[17] & 1 == 1");
	}
	return 0;
}
