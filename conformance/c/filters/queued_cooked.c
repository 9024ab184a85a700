/* Filters on the any device, with each of its link types: while packets are queued, and later. */
#include <pcap/dlt.h>
#include "../wire.h"
#include "../tags.h"
#include "../pinned.h"

static void send_some(int in, int out)
{
	send_tagged(in, &taggings[0], 60);
	send_tagged(in, &taggings[1], 70);
	send_tagged(out, &taggings[0], 80);
	send_sized(in, 0, 1, 100);
}

static void replace(int in, int out, int link, const char *expression)
{
	unsigned count = 0;
	pcap_t *p = opened("any", 3);
	pcap_set_datalink(p, link);
	pcap_setdirection(p, PCAP_D_IN);
	send_some(in, out);
	settle(p, 8);
	printf("link %d, %s:", link, expression);
	if (!tried(p, expression))
		return;
	printf(" -> %d,", drain(p, print_size, NULL));
	/* Send two rounds of packets and print the second: the library also filters the first
	   round. */
	for (int i = 0; i < 2; i++) {
		send_some(in, out);
		sleep_ms(settled());
		if (i == 0)
			drain(p, count_packet, &count);
	}
	printf(" -> %d\n", drain(p, print_size, NULL));
	pcap_close(p);
}

int main(void)
{
	static const char *const expressions[] = { "ip", "udp dst port 2000", "udp dst port 2001", "not ip",
		                                   "ether proto 0x88b5", "len > 100", "ip[8] = 64", "link[0] = 8",
		                                   "greater 120" };
	int in = port_of(near), out = port_of(far);
	stay_on_cpu();
	for (size_t i = 0; i < sizeof expressions / sizeof expressions[0]; i++) {
		if (i % 2 == 0)
			replace(in, out, DLT_LINUX_SLL, expressions[i]);
		if (i % 2 || i == 6)
			replace(in, out, DLT_LINUX_SLL2, expressions[i]);
	}
	return 0;
}
