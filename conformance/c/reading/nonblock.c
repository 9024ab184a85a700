/* Non-blocking mode: set and read before and after activation, reading without packets, back to blocking. */
#include "../wire.h"

static void mode(pcap_t *p, const char *when)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	int rc = pcap_getnonblock(p, errbuf);
	printf("  %s: %d [%s]\n", when, rc, errbuf);
}

static void set(pcap_t *p, int to)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	int rc = pcap_setnonblock(p, to, errbuf);
	printf("  set to %d: %d [%s]\n", to, rc, errbuf);
}

static void broken_while_empty(pcap_t *p, int port)
{
	unsigned count = 0;
	unsigned before = received(p);
	pcap_breakloop(p);
	printf("  broken while empty: %d", pcap_dispatch(p, -1, count_packet, (u_char *)&count));
	printf(" %d\n", pcap_dispatch(p, -1, count_packet, (u_char *)&count));
	send_numbered(port, 50, 4);
	settle(p, before + 4);
	for (int i = 0; i < 2; i++) {
		printf("  and with packets:");
		printf(" -> %d\n", pcap_dispatch(p, -1, print_number, NULL));
	}
}

static void read_both(pcap_t *p, int port)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	struct pcap_pkthdr header, *at;
	const u_char *bytes;
	double begin = now();
	printf("  empty: %d", pcap_dispatch(p, -1, print_number, NULL));
	printf(" %d %s", pcap_next_ex(p, &at, &bytes), yes(pcap_next(p, &header) != NULL));
	printf(", at once: %s\n", yes(now() - begin < 2));
	send_numbered(port, 0, 6);
	settle(p, 6);
	printf("  packets:");
	printf(" -> %d,", pcap_dispatch(p, 4, print_number, NULL));
	printf(" -> %d,", pcap_dispatch(p, 4, print_number, NULL));
	printf(" -> %d\n", pcap_dispatch(p, 4, print_number, NULL));
	broken_while_empty(p, port);
	pcap_setnonblock(p, 0, errbuf);
	send_numbered(port, 70, 2);
	printf("  blocking:");
	printf(" -> %d\n", pcap_loop(p, 2, print_number, NULL));
}

int main(void)
{
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		for (int before = 0; before <= 1; before++) {
			pcap_t *p = created(far, version);
			printf("version %d, set %s activation\n", version, before ? "before" : "after");
			mode(p, "created");
			if (before)
				set(p, 1);
			mode(p, "then");
			activated(p);
			mode(p, "activated");
			if (!before)
				set(p, 1);
			set(p, 5);
			mode(p, "then");
			read_both(p, port);
			mode(p, "at last");
			pcap_close(p);
		}
	}
	return 0;
}
