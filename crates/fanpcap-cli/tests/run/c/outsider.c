/* Reads a packet socket of its own, past libpcap: outsider. */
#include <arpa/inet.h>
#include <net/ethernet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void)
{
	char frame[2048];

	if (socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)) != 3) {
		perror("socket");
		return 1;
	}
	fputs("captures\n", stderr);
	for (;;) {
		if (recv(3, frame, sizeof frame, 0) < 0)
			return 1;
	}
}
