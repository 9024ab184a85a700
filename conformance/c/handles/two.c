/* Two handles on one device in one process: each gets every packet, with its own filter, counters and mode. */
#include "../wire.h"

static void await_both(pcap_t *one, pcap_t *other, unsigned count)
{
	for (double end = counted_until(); received(one) + received(other) < count && now() < end;)
		sleep_ms(1);
	sleep_ms(settled());
}

int main(void)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		pcap_t *one = opened(far, version), *other = opened(far, 5 - version);
		filter(other, "ether[17] & 1 == 0");
		pcap_setnonblock(other, 1, errbuf);
		send_numbered(port, 0, 10);
		await_both(one, other, 10);
		printf("version %d:", version);
		printf(" -> %d;", drain(one, print_number, NULL));
		printf(" -> %d\n", drain(other, print_number, NULL));
		print_stats(one);
		print_stats(other);
		pcap_breakloop(other);
		pcap_close(other);
		send_numbered(port, 20, 3);
		sleep_ms(settled());
		printf("  alone:");
		printf(" -> %d\n", drain(one, print_number, NULL));
		pcap_close(one);
	}
	return 0;
}
