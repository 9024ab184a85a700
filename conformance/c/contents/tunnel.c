/* A tun device: raw IP packets, with no link-layer header. */
#include <fcntl.h>
#include <linux/if_tun.h>
#include "../wire.h"

static void print_packet(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	printf("  %u of %u: ", header->caplen, header->len);
	print_bytes(bytes, header->caplen);
	printf("\n");
}

static int tunnel(const char *name)
{
	struct ifreq request = { .ifr_flags = IFF_TUN | IFF_NO_PI };
	int fd = open("/dev/net/tun", O_RDWR), control = socket(AF_INET, SOCK_DGRAM, 0);
	strcpy(request.ifr_name, name);
	if (fd < 0 || ioctl(fd, TUNSETIFF, &request) != 0)
		return -1;
	request.ifr_flags = IFF_UP | IFF_RUNNING;
	if (ioctl(control, SIOCSIFFLAGS, &request) != 0)
		fail("SIOCSIFFLAGS", strerror(errno));
	close(control);
	return fd;
}

int main(void)
{
	unsigned char frame[256];
	int *links = NULL, tun = tunnel("tun0");
	if (tun < 0) {
		printf("no tun devices here\n");
		return 0;
	}
	size_t size = datagram(frame, 7, 9, 20) - HEADER;
	for (int version = 2; version <= 3; version++) {
		pcap_t *p = created("tun0", version);
		pcap_set_snaplen(p, version == 2 ? 65535 : 40);
		activated(p);
		int count = pcap_list_datalinks(p, &links);
		printf("version %d: link %d of %d\n", version, pcap_datalink(p), count);
		pcap_free_datalinks(links);
		filter(p, "udp dst port 9 or ip6");
		if (write(tun, frame + HEADER, size) != (ssize_t)size)
			fail("write", strerror(errno));
		printf("  inject: %d\n", pcap_inject(p, frame + HEADER, size));
		int port = port_of("tun0");
		send_frame(port, frame + HEADER, size - 4);
		close(port);
		settle(p, 2);
		printf(" -> %d\n", drain(p, print_packet, NULL));
		printf("  set_datalink: %d", pcap_set_datalink(p, 1));
		printf(" [%s]\n", pcap_geterr(p));
		pcap_close(p);
	}
	return 0;
}
