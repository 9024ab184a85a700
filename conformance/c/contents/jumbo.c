/* Frames of 9000 bytes. */
#include "../wire.h"

static void print_packet(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	printf(" %u of %u ends in %02x,", header->caplen, header->len, bytes[header->caplen - 1]);
}

static void set_mtu(const char *device, int mtu)
{
	struct ifreq request = { .ifr_mtu = mtu };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	strcpy(request.ifr_name, device);
	printf("%s: %d\n", device, ioctl(fd, SIOCSIFMTU, &request));
	close(fd);
}

int main(void)
{
	static const int snaplens[] = { 262144, 65535, 9014, 9013, 1514, 96 };
	set_mtu(near, 9000);
	set_mtu(far, 9000);
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		for (size_t i = 0; i < sizeof snaplens / sizeof snaplens[0]; i++) {
			pcap_t *p = created(far, version);
			pcap_set_snaplen(p, snaplens[i]);
			activated(p);
			printf("version %d, snaplen %d:", version, snaplens[i]);
			send_sized(port, 0, 2, 9014);
			send_sized(port, 0, 1, 5000);
			settle(p, 3);
			printf(" -> %d\n", drain(p, print_packet, NULL));
			printf("  inject: %d", pcap_inject(p, (unsigned char[9014]){ 2 }, 9014));
			printf(" %d\n", pcap_inject(p, (unsigned char[9020]){ 2 }, 9020));
			pcap_close(p);
		}
	}
	return 0;
}
