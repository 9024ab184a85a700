/* Opens the source from which the callback programs read: a savefile, or for `live:DEVICE` the
   device, to which this program sends packets. */
#include <arpa/inet.h>
#include <pcap/pcap.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static inline int is_live(const char *source)
{
	return strncmp(source, "live:", 5) == 0;
}

static inline pcap_t *open_source(const char *source)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	pcap_t *p = is_live(source) ? pcap_open_live(source + 5, 256, 0, 20, errbuf)
	                            : pcap_open_offline(source, errbuf);
	if (!p)
		fprintf(stderr, "%s\n", errbuf);
	return p;
}

/* Sends datagrams to the discard port of this host. */
static inline void send_some(const char *source, int count)
{
	struct sockaddr_in to;
	int fd;
	if (!is_live(source))
		return;
	memset(&to, 0, sizeof to);
	to.sin_family = AF_INET;
	to.sin_port = htons(9);
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	while (fd >= 0 && count-- > 0)
		(void)!sendto(fd, "x", 1, 0, (struct sockaddr *)&to, sizeof to);
	close(fd);
}

/* Reads the remaining packets, at most `most`. On a live handle, the timeout may expire several
   times before the first packet comes, so gives up only after 100 reads without a packet. */
static inline int read_rest(pcap_t *p, int most)
{
	struct pcap_pkthdr *header;
	const u_char *bytes;
	int count = 0, idle = 0, rc;
	while (count < most && idle < 100 && (rc = pcap_next_ex(p, &header, &bytes)) >= 0) {
		count += rc;
		idle += rc == 0;
	}
	return count;
}
