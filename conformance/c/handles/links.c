/* Link types: the lists of each kind of device, a change to DOCSIS and back, the cooked types, and refused types. */
#include <pcap/dlt.h>
#include "../wire.h"

static void print_length(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	printf(" %u of %u %02x%02x", header->caplen, header->len, bytes[0], bytes[12]);
}

static void try_all(const char *device, int version, int port)
{
	static const int links[] = { DLT_DOCSIS, DLT_EN10MB, DLT_LINUX_SLL, DLT_LINUX_SLL2, DLT_RAW, DLT_NULL, -1, 9999,
		                     DLT_EN10MB, DLT_LINUX_SLL };
	int *list = NULL;
	pcap_t *p = opened(device, version);
	int count = pcap_list_datalinks(p, &list);
	printf("%s, version %d: %d,", device, version, pcap_datalink(p));
	for (int i = 0; i < count; i++)
		printf(" %d", list[i]);
	printf("\n");
	pcap_free_datalinks(list);
	for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
		int rc = pcap_set_datalink(p, links[i]);
		printf("  %d: %d [%s], is %d\n", links[i], rc, rc ? pcap_geterr(p) : "", pcap_datalink(p));
		if (rc == 0 && port >= 0) {
			unsigned before = received(p);
			send_numbered(port, 0, 2);
			settle(p, before + 2);
			printf("   ");
			printf(" -> %d\n", drain(p, print_length, NULL));
		}
	}
	pcap_close(p);
}

int main(void)
{
	int port = port_of(near);
	try_all(far, 2, port);
	try_all(far, 3, port);
	try_all("lo", 3, -1);
	try_all("any", 3, port);
	return 0;
}
