/* Opens a device and never reads packets. Usage: idle DEVICE. */
#include <pcap/pcap.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char errbuf[PCAP_ERRBUF_SIZE];

	if (argc != 2)
		return 2;
	if (!pcap_open_live(argv[1], 96, 0, 10, errbuf)) {
		fprintf(stderr, "%s\n", errbuf);
		return 1;
	}
	fputs("ready\n", stderr);
	pause();
	return 0;
}
