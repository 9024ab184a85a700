/* Calls on the handle in its own callback: statistics, a filter, a direction, sending; and a new handle. */
#include "../wire.h"

static pcap_t *own;

static void act(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	unsigned char frame[SMALLEST] = { 0 };
	unsigned number = number_of(bytes);
	print_number(user, header, bytes);
	if (number == 2)
		printf(" (received %u)", received(own));
	if (number == 4)
		filter(own, "ether[17] & 1 == 0");
	if (number == 8)
		printf(" (direction %d)", pcap_setdirection(own, PCAP_D_IN));
	if (number == 10) {
		memset(frame, 2, sizeof frame);
		printf(" (sent %d)", pcap_inject(own, frame, sizeof frame));
	}
	if (number == 12)
		printf(" (nonblock %d)", pcap_setnonblock(own, 1, errbuf));
	if (number == 14)
		pcap_close(opened(near, 3));
}

int main(void)
{
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		own = opened(far, version);
		send_numbered(port, 0, 20);
		settle(own, 20);
		printf("version %d:", version);
		printf(" -> %d\n", pcap_dispatch(own, -1, act, NULL));
		printf("  then:");
		printf(" -> %d\n", pcap_dispatch(own, -1, print_number, NULL));
		pcap_close(own);
	}
	return 0;
}
