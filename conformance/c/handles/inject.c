/* Packets sent by pcap_inject() and pcap_sendpacket(): which packets arrive, and the result for each size or device. */
#include "../wire.h"

static void print_packet(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	(void)bytes;
	printf(" %u", header->len);
}

static void try(pcap_t *p, long size)
{
	static unsigned char frame[70000];
	header(frame, NUMBERED);
	errno = 0;
	int rc = size < 0 ? 0 : pcap_inject(p, frame, (size_t)size);
	printf("  inject %ld: %d [%s]\n", size, rc, rc < 0 ? pcap_geterr(p) : "");
	errno = 0;
	rc = pcap_sendpacket(p, frame, (int)size);
	printf("  sendpacket %ld: %d [%s]\n", size, rc, rc < 0 ? pcap_geterr(p) : "");
}

int main(void)
{
	static const long sizes[] = { 60, 14, 13, 4, 1, 0, -1, 1514, 1518, 1519, 9000, 65536 };
	for (int version = 2; version <= 3; version++) {
		char errbuf[PCAP_ERRBUF_SIZE];
		pcap_t *receiver = opened(near, 3), *p = opened(far, version);
		printf("version %d\n", version);
		for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
			try(p, sizes[i]);
		pcap_setnonblock(p, 1, errbuf);
		try(p, 77);
		/* A handle does not receive the packets that it sends itself. */
		settle(receiver, 8);
		printf("  received:");
		printf(" -> %d\n", drain(receiver, print_packet, NULL));
		printf("  seen:");
		printf(" -> %d\n", drain(p, print_packet, NULL));
		pcap_close(p);
		pcap_close(receiver);
	}
	pcap_t *any = opened("any", 3), *lo = opened("lo", 3);
	printf("any\n");
	try(any, 60);
	try(any, 0);
	printf("lo\n");
	try(lo, 60);
	pcap_close(any);
	pcap_close(lo);
	return 0;
}
