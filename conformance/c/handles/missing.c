/* Devices that don't exist, or with an impossible name: errors of pcap_activate() and pcap_open_live(). */
#include "../wire.h"

static void try(const char *device)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	pcap_t *p = pcap_create(device, errbuf);
	printf("'%s': %s [%s]\n", device, yes(p != NULL), errbuf);
	if (p) {
		int rc = pcap_activate(p);
		printf("  activate: %d [%s] %s\n", rc, pcap_geterr(p), pcap_statustostr(rc));
		pcap_close(p);
	}
	*errbuf = 0;
	p = pcap_open_live(device, 100, 1, 10, errbuf);
	printf("  open_live: %s [%s]\n", yes(p != NULL), errbuf);
	if (p)
		pcap_close(p);
}

int main(void)
{
	try("nodevice0");
	try("a-name-that-is-longer-than-any-device-may-have");
	try("fifteen-letters");
	try("sixteen--letters");
	try("");
	try("with space");
	try("va.100");
	try("vb:1");
	try("/dev/null");
	return 0;
}
