/* The result and message of each setter: on a created handle, and on an activated handle. */
#include "../wire.h"

static void report(pcap_t *p, const char *what, int rc)
{
	printf("  %s: %d [%s]\n", what, rc, rc ? pcap_geterr(p) : "");
}

static void set_all(pcap_t *p)
{
	report(p, "snaplen", pcap_set_snaplen(p, 200));
	report(p, "snaplen", pcap_set_snaplen(p, -5));
	report(p, "promisc", pcap_set_promisc(p, 1));
	report(p, "promisc", pcap_set_promisc(p, 0));
	report(p, "rfmon", pcap_set_rfmon(p, 0));
	report(p, "timeout", pcap_set_timeout(p, 20));
	report(p, "buffer", pcap_set_buffer_size(p, 0));
	report(p, "buffer", pcap_set_buffer_size(p, -1));
	report(p, "buffer", pcap_set_buffer_size(p, 1 << 20));
	report(p, "immediate", pcap_set_immediate_mode(p, 1));
	report(p, "immediate", pcap_set_immediate_mode(p, 0));
	report(p, "tstamp type", pcap_set_tstamp_type(p, PCAP_TSTAMP_HOST));
	report(p, "precision", pcap_set_tstamp_precision(p, PCAP_TSTAMP_PRECISION_NANO));
	report(p, "protocol", pcap_set_protocol_linux(p, 0x0800));
	report(p, "can rfmon", pcap_can_set_rfmon(p));
}

int main(void)
{
	static const char *const devices[] = { "vb", "lo", "any" };
	for (int i = 0; i < 3; i++) {
		char errbuf[PCAP_ERRBUF_SIZE] = "";
		pcap_t *p = pcap_create(devices[i], errbuf);
		printf("%s created [%s]\n", devices[i], errbuf);
		set_all(p);
		report(p, "activate", pcap_activate(p));
		printf("  snaplen %d, precision %d, link %d\n", pcap_snapshot(p), pcap_get_tstamp_precision(p),
		       pcap_datalink(p));
		set_all(p);
		report(p, "activate again", pcap_activate(p));
		pcap_close(p);
	}
	return 0;
}
