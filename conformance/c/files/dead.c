/* Handles without a device: the properties that they report, and the calls that fail. */
#include "../wire.h"
#include "../savefile.h"

static void report(pcap_t *p, const char *what, int rc)
{
	printf("  %s: %d [%s]\n", what, rc, rc < 0 ? pcap_geterr(p) : "");
}

static void ask(pcap_t *p, const char *what)
{
	struct pcap_stat stat;
	struct pcap_pkthdr *header;
	const u_char *bytes;
	int *list = NULL;
	printf("%s: link %d, snapshot %d, precision %d, version %d.%d, file %s, descriptor %d %d\n", what, pcap_datalink(p),
	       pcap_snapshot(p), pcap_get_tstamp_precision(p), pcap_major_version(p), pcap_minor_version(p),
	       yes(pcap_file(p) != NULL), pcap_fileno(p), pcap_get_selectable_fd(p));
	report(p, "dispatch", pcap_dispatch(p, 1, print_number, NULL));
	report(p, "next_ex", pcap_next_ex(p, &header, &bytes));
	report(p, "stats", pcap_stats(p, &stat));
	report(p, "inject", pcap_inject(p, "x", 1));
	report(p, "setfilter", pcap_setfilter(p, &(struct bpf_program){ 0, NULL }));
	report(p, "set_datalink", pcap_set_datalink(p, 12));
	report(p, "list_datalinks", pcap_list_datalinks(p, &list));
	pcap_free_datalinks(list);
	pcap_dumper_t *dumper = pcap_dump_open(p, "dead.pcap");
	printf("  dump_open: %s [%s]\n", yes(dumper != NULL), dumper ? "" : pcap_geterr(p));
	if (dumper) {
		pcap_dump((u_char *)dumper, &(struct pcap_pkthdr){ { 5, 6 }, 3, 30 }, (const u_char *)"abc");
		pcap_dump_close(dumper);
		print_file("dead.pcap");
	}
	pcap_close(p);
}

int main(void)
{
	ask(pcap_open_dead(DLT_EN10MB, 65535), "ethernet");
	ask(pcap_open_dead(DLT_RAW, 0), "raw");
	ask(pcap_open_dead(DLT_LINUX_SLL2, 96), "cooked");
	ask(pcap_open_dead(9999, 10), "unknown");
	ask(pcap_open_dead_with_tstamp_precision(DLT_EN10MB, 100, PCAP_TSTAMP_PRECISION_NANO), "nano");
	ask(pcap_open_dead_with_tstamp_precision(DLT_EN10MB, 100, 9), "precision 9");
	return 0;
}
