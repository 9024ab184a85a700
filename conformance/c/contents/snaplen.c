/* The snapshot length: captured bytes of frames of all sizes, with and without a filter. */
#include "../wire.h"

static const size_t sizes[] = { 14, 18, 59, 60, 61, 64, 65, 95, 96, 97, 128, 1000, 1513, 1514 };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void print_lengths(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	printf(" %u/%u:%02x", header->caplen, header->len, bytes[header->caplen - 1]);
}

static void capture(int port, int version, int snaplen, const char *expression)
{
	unsigned char frame[2048];
	pcap_t *p = created(far, version);
	pcap_set_snaplen(p, snaplen);
	activated(p);
	if (expression)
		filter(p, expression);
	printf("version %d, snaplen %d is %d, %s:", version, snaplen, pcap_snapshot(p), expression ? expression : "all");
	for (size_t i = 0; i < SIZES; i++) {
		header(frame, NUMBERED);
		for (size_t at = HEADER; at < sizes[i]; at++)
			frame[at] = (unsigned char)at;
		send_frame(port, frame, sizes[i]);
	}
	settle(p, SIZES);
	printf(" -> %d\n", drain(p, print_lengths, NULL));
	pcap_close(p);
}

int main(void)
{
	static const int snaplens[] = { 0, -1, 1, 14, 96, 1514, 262145, 0x7fffffff };
	int port = port_of(near);
	for (int version = 2; version <= 3; version++)
		for (size_t i = 0; i < sizeof snaplens / sizeof snaplens[0]; i++) {
			capture(port, version, snaplens[i], NULL);
			if (i % 3 == 1)
				capture(port, version, snaplens[i], "ether proto 0x88b5");
		}
	return 0;
}
