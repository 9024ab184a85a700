/* The properties of a handle with no setting, on each kind of device. */
#include "../wire.h"

static void print_all(const char *device)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	pcap_t *p = pcap_create(device, errbuf);
	int rc = pcap_activate(p);
	printf("%s: activation %d [%s]\n", device ? device : "none", rc, pcap_geterr(p));
	printf("  link %d, extension %d, snapshot %d, buffer %d\n", pcap_datalink(p), pcap_datalink_ext(p),
	       pcap_snapshot(p), pcap_bufsize(p));
	printf("  swapped %d, version %d.%d, file %s\n", pcap_is_swapped(p), pcap_major_version(p),
	       pcap_minor_version(p), yes(pcap_file(p) != NULL));
	printf("  precision %d, nonblock %d, rfmon %d\n", pcap_get_tstamp_precision(p), pcap_getnonblock(p, errbuf),
	       pcap_can_set_rfmon(p));
	printf("  descriptor %s, the selectable one too %s, required timeout %s\n", yes(pcap_fileno(p) >= 0),
	       yes(pcap_get_selectable_fd(p) == pcap_fileno(p)), yes(pcap_get_required_select_timeout(p) != NULL));
	print_stats(p);
	pcap_close(p);
}

int main(void)
{
	print_all("vb");
	print_all("lo");
	print_all("any");
	print_all(NULL);
	return 0;
}
