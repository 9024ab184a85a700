/* Opens two handles on a device and reads only one of them. Usage: two_handles DEVICE. */
#include <pcap/pcap.h>
#include <stdio.h>

static void nothing(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	(void)header;
	(void)bytes;
}

int main(int argc, char **argv)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	pcap_t *read, *unread;

	if (argc != 2)
		return 2;
	unread = pcap_open_live(argv[1], 96, 0, 10, errbuf);
	read = pcap_open_live(argv[1], 96, 0, 10, errbuf);
	if (!unread || !read) {
		fprintf(stderr, "%s\n", errbuf);
		return 1;
	}
	fputs("ready\n", stderr);
	pcap_loop(read, -1, nothing, NULL);
	return 0;
}
