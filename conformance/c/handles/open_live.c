/* pcap_open_live() makes the same handle as pcap_create() and pcap_activate(). */
#include "../wire.h"

static void describe(pcap_t *p, int port, const char *how)
{
	printf("%s: snapshot %d, link %d, [%s]\n", how, pcap_snapshot(p), pcap_datalink(p), pcap_geterr(p));
	send_sized(port, 0, 3, 200);
	settle(p, 3);
	printf("  set after: %d [%s]\n", pcap_set_snaplen(p, 5), pcap_geterr(p));
	printf(" -> %d\n", drain(p, print_number, NULL));
	print_stats(p);
	pcap_close(p);
}

int main(void)
{
	static const int snaplens[] = { 0, 1, 100, 65535, 262144, 1000000, -3 };
	int port = port_of(near);
	for (size_t i = 0; i < sizeof snaplens / sizeof snaplens[0]; i++) {
		char errbuf[PCAP_ERRBUF_SIZE] = "untouched";
		pcap_t *p = pcap_open_live(far, snaplens[i], (int)i % 2, TIMEOUT, errbuf);
		printf("errbuf [%s]\n", errbuf);
		describe(p, port, "open_live");
		p = pcap_create(far, errbuf);
		pcap_set_snaplen(p, snaplens[i]);
		pcap_set_promisc(p, (int)i % 2);
		pcap_set_timeout(p, TIMEOUT);
		describe(activated(p), port, "create");
	}
	char errbuf[PCAP_ERRBUF_SIZE] = "untouched";
	pcap_t *p = pcap_open_live(NULL, 100, 0, -1, errbuf);
	printf("no device: %s [%s], nonblock %d\n", yes(p != NULL), errbuf, p ? pcap_getnonblock(p, errbuf) : 0);
	if (p)
		pcap_close(p);
	return 0;
}
