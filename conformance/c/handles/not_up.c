/* Devices that are down: the result of activation, and a new handle once they are up. */
#include "../wire.h"

int main(void)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	set_up(far, 0);
	for (int version = 2; version <= 3; version++) {
		pcap_t *p = created(far, version);
		int rc = pcap_activate(p);
		printf("version %d: %d [%s] %s\n", version, rc, pcap_geterr(p), pcap_statustostr(rc));
		pcap_close(p);
		set_up(far, 1);
		p = created(far, version);
		rc = pcap_activate(p);
		printf("  up: %d [%s]\n", rc, rc ? pcap_geterr(p) : "");
		pcap_close(p);
		set_up(far, 0);
	}
	pcap_t *p = pcap_open_live(far, 100, 0, 10, errbuf);
	printf("open_live: %s [%s]\n", yes(p != NULL), errbuf);
	if (p)
		pcap_close(p);
	return 0;
}
