/* Reads a packet socket without libpcap. Usage: outsider [PROTOCOL [DEVICE]]. */
#include <arpa/inet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char frame[2048];
	int protocol = htons(argc > 1 ? strtol(argv[1], NULL, 0) : ETH_P_ALL);
	struct sockaddr_ll device = { .sll_family = AF_PACKET, .sll_protocol = protocol };

	int fd = socket(AF_PACKET, SOCK_RAW, protocol);

	if (fd < 0) {
		perror("socket");
		return 1;
	}
	if (argc > 2) {
		device.sll_ifindex = if_nametoindex(argv[2]);
		if (bind(fd, (struct sockaddr *)&device, sizeof device) != 0) {
			perror("bind");
			return 1;
		}
	}
	fputs("captures\n", stderr);
	for (;;) {
		if (recv(fd, frame, sizeof frame, 0) < 0)
			return 1;
	}
}
