/* A callback that reads another handle, and breaks the loop of that handle or of its own. */
#include "../wire.h"

static pcap_t *outer, *inner;

static void inside(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	print_number(user, header, bytes);
	if (number_of(bytes) == 102)
		pcap_breakloop(outer);
	if (number_of(bytes) == 104)
		pcap_breakloop(inner);
}

static void outside(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	print_number(user, header, bytes);
	printf(" (");
	int rc = pcap_dispatch(inner, 2, inside, NULL);
	printf(" -> %d)", rc);
}

int main(void)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	int to_far = port_of(near), to_near = port_of(far);
	for (int version = 2; version <= 3; version++) {
		outer = opened(far, version);
		inner = opened(near, 5 - version);
		pcap_setdirection(outer, PCAP_D_IN);
		pcap_setdirection(inner, PCAP_D_IN);
		pcap_setnonblock(inner, 1, errbuf);
		send_numbered(to_far, 0, 8);
		send_numbered(to_near, 100, 8);
		settle(outer, 16);
		settle(inner, 16);
		printf("version %d:", version);
		for (int i = 0; i < 3; i++)
			printf(" -> %d;", pcap_dispatch(outer, 4, outside, NULL));
		printf("\n");
		pcap_close(inner);
		pcap_close(outer);
	}
	return 0;
}
