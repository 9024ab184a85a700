/* Packets of 60000 bytes on the loopback, whole and cut. */
#include "../wire.h"

static void print_packet(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	printf(" %u of %u ends in %02x,", header->caplen, header->len, bytes[header->caplen - 1]);
}

static void send_datagrams(void)
{
	static unsigned char payload[60000];
	static const size_t sizes[] = { 60000, 100, 33000 };
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (size_t i = 0; i < sizeof payload; i++)
		payload[i] = (unsigned char)(i / 251 + i);
	for (int i = 0; i < 3; i++)
		(void)!sendto(fd, payload, sizes[i], MSG_DONTWAIT, (struct sockaddr *)&to, sizeof to);
	close(fd);
}

int main(void)
{
	static const int snaplens[] = { 262144, 60042, 60041, 40000, 100 };
	for (int version = 2; version <= 3; version++)
		for (size_t i = 0; i < sizeof snaplens / sizeof snaplens[0]; i++) {
			pcap_t *p = created("lo", version);
			pcap_set_snaplen(p, snaplens[i]);
			pcap_set_buffer_size(p, 8 << 20);
			activated(p);
			if (i % 2)
				filter(p, "udp port 9");
			else
				filter(p, "not icmp");
			send_datagrams();
			settle(p, 6);
			printf("version %d, snaplen %d:", version, snaplens[i]);
			printf(" -> %d\n", drain(p, print_packet, NULL));
			print_stats(p);
			pcap_close(p);
		}
	return 0;
}
