/* How many packets pcap_dispatch(), pcap_loop(), pcap_next() and pcap_next_ex() deliver, and what they return. */
#include "../wire.h"

static void call(pcap_t *p, const char *name, int (*read)(pcap_t *, int, pcap_handler, u_char *), int most)
{
	printf("  %s %d:", name, most);
	printf(" -> %d\n", read(p, most, print_number, NULL));
}

static void next(pcap_t *p)
{
	struct pcap_pkthdr header, *at = NULL;
	const u_char *bytes = pcap_next(p, &header);
	printf("  next: %u, %u of %u\n", bytes ? number_of(bytes) : 0, header.caplen, header.len);
	int rc = pcap_next_ex(p, &at, &bytes);
	printf("  next_ex: %d, %u, %u of %u\n", rc, number_of(bytes), at->caplen, at->len);
}

int main(void)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		pcap_t *p = opened(far, version);
		printf("version %d\n", version);
		send_numbered(port, 0, 40);
		settle(p, 40);
		call(p, "dispatch", pcap_dispatch, 3);
		call(p, "dispatch", pcap_dispatch, 1);
		call(p, "loop", pcap_loop, 5);
		next(p);
		call(p, "dispatch", pcap_dispatch, 0);
		send_numbered(port, 100, 10);
		settle(p, 50);
		call(p, "loop", pcap_loop, 7);
		call(p, "dispatch", pcap_dispatch, 200);
		send_numbered(port, 200, 4);
		settle(p, 54);
		call(p, "dispatch", pcap_dispatch, -1);
		pcap_setnonblock(p, 1, errbuf);
		struct pcap_pkthdr header, *at = NULL;
		const u_char *bytes = NULL;
		call(p, "dispatch", pcap_dispatch, -1);
		printf("  next: %s\n", yes(pcap_next(p, &header) != NULL));
		printf("  next_ex: %d\n", pcap_next_ex(p, &at, &bytes));
		pcap_close(p);
	}
	return 0;
}
