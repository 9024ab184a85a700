/* Without CAP_NET_RAW, opening a handle fails with an error; handles that are already open still work. */
#include "../wire.h"

int main(void)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	int port = port_of(near);
	pcap_t *open = opened(far, 3), *later = created(far, 3);
	if (setgid(65534) != 0 || setuid(65534) != 0)
		fail("setuid", strerror(errno));
	int rc = pcap_activate(later);
	printf("activate: %d [%s] %s\n", rc, pcap_geterr(later), pcap_statustostr(rc));
	pcap_close(later);
	later = pcap_open_live("lo", 100, 0, 10, errbuf);
	printf("open_live: %s [%s]\n", yes(later != NULL), errbuf);
	*errbuf = 0;
	later = pcap_open_live("nodevice0", 100, 0, 10, errbuf);
	printf("open_live: %s [%s]\n", yes(later != NULL), errbuf);
	*errbuf = 0;
	later = pcap_open_live("any", 100, 1, 10, errbuf);
	printf("open_live: %s [%s]\n", yes(later != NULL), errbuf);
	/* Some daemons give up their privileges after they have opened their handles. */
	filter(open, "ether[17] & 1 == 0");
	send_numbered(port, 0, 6);
	settle(open, 3);
	printf("opened before:");
	printf(" -> %d\n", drain(open, print_number, NULL));
	print_stats(open);
	pcap_close(open);
	return 0;
}
