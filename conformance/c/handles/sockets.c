/* pcap_fileno() is a bound packet socket, which programs may use as a socket. */
#include <linux/filter.h>
#include "../wire.h"

static void option(int fd, int level, int name, const char *what)
{
	int value = -1;
	socklen_t size = sizeof value;
	int rc = getsockopt(fd, level, name, &value, &size);
	printf("  %s: %d %d\n", what, rc, value);
}

static void describe(const char *device, int version)
{
	pcap_t *p = opened(device, version);
	struct sockaddr_ll address = { 0 };
	socklen_t size = sizeof address;
	int fd = pcap_fileno(p);
	getsockname(fd, (struct sockaddr *)&address, &size);
	printf("%s, version %d: family %d, protocol %x, device %s\n", device, version, address.sll_family,
	       ntohs(address.sll_protocol), yes(address.sll_ifindex == (int)if_nametoindex(device)));
	option(fd, SOL_SOCKET, SO_DOMAIN, "domain");
	option(fd, SOL_SOCKET, SO_TYPE, "type");
	option(fd, SOL_SOCKET, SO_ERROR, "error");
	option(fd, SOL_PACKET, PACKET_VERSION, "version");
	option(fd, SOL_PACKET, PACKET_AUXDATA, "auxiliary data");
	option(fd, SOL_PACKET, PACKET_RESERVE, "reserve");
	option(fd, SOL_PACKET, PACKET_LOSS, "loss");
	int receive = 1 << 20;
	printf("  set SO_RCVBUF: %d\n", setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive, sizeof receive));
	pcap_close(p);
}

/* Attaches a filter to the socket without a call of the library. */
static void own_filter(int port)
{
	struct sock_filter odd[] = { BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 17), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 1, 0, 1),
		                     BPF_STMT(BPF_RET | BPF_K, 40), BPF_STMT(BPF_RET | BPF_K, 0) };
	struct sock_fprog program = { 4, odd };
	pcap_t *p = opened(far, 3);
	printf("own filter: %d", setsockopt(pcap_fileno(p), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program));
	send_numbered(port, 0, 6);
	settle(p, 3);
	printf(" -> %d\n", drain(p, print_number, NULL));
	unsigned char frame[SMALLEST];
	header(frame, NUMBERED);
	printf("sent by the socket: %zd\n", send(pcap_fileno(p), frame, sizeof frame, 0));
	pcap_close(p);
}

int main(void)
{
	for (int version = 2; version <= 3; version++) {
		describe(far, version);
		describe("lo", version);
		describe("any", version);
	}
	own_filter(port_of(near));
	return 0;
}
