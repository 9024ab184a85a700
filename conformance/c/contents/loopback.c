/* The loopback device: each packet once, in each direction that a program can set. */
#include "../wire.h"

static void print_packet(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	printf("  %u of %u: ", header->caplen, header->len);
	print_bytes(bytes, 14);
	printf(" .. ");
	print_bytes(bytes + 28, header->caplen - 28);
	printf("\n");
}

/* Sends datagrams to the discard port of this host. */
static void babble(int count)
{
	struct sockaddr_in from = { .sin_family = AF_INET, .sin_port = htons(4000) };
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	from.sin_addr.s_addr = to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	bind(fd, (struct sockaddr *)&from, sizeof from);
	while (count-- > 0)
		(void)!sendto(fd, "conform", 7, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof to);
	close(fd);
}

int main(void)
{
	static const pcap_direction_t directions[] = { PCAP_D_INOUT, PCAP_D_IN, PCAP_D_OUT };
	for (int version = 2; version <= 3; version++) {
		for (int i = 0; i < 3; i++) {
			pcap_t *p = opened("lo", version);
			int rc = pcap_setdirection(p, directions[i]);
			printf("version %d, link %d, direction %d: %d\n", version, pcap_datalink(p), directions[i], rc);
			filter(p, "udp port 9");
			babble(3);
			settle(p, 6);
			printf(" -> %d\n", drain(p, print_packet, NULL));
			print_stats(p);
			pcap_close(p);
		}
	}
	return 0;
}
