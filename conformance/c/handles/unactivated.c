/* The result of every function that takes a handle, for a handle that isn't activated. */
#include "../wire.h"

static void number(pcap_t *p, const char *name, long rc)
{
	printf("%s: %ld [%s]\n", name, rc, pcap_geterr(p));
}

static void reading(pcap_t *p)
{
	struct pcap_pkthdr header, *at = NULL;
	const u_char *bytes = NULL;
	number(p, "dispatch", pcap_dispatch(p, -1, print_number, NULL));
	number(p, "loop", pcap_loop(p, 1, print_number, NULL));
	number(p, "next_ex", pcap_next_ex(p, &at, &bytes));
	number(p, "next", pcap_next(p, &header) != NULL);
	pcap_breakloop(p);
	number(p, "breakloop", 0);
	number(p, "inject", pcap_inject(p, "x", 1));
	number(p, "sendpacket", pcap_sendpacket(p, (const u_char *)"x", 1));
}

static void asking(pcap_t *p)
{
	struct pcap_stat stat;
	int *list = NULL;
	number(p, "stats", pcap_stats(p, &stat));
	number(p, "datalink", pcap_datalink(p));
	number(p, "datalink_ext", pcap_datalink_ext(p));
	number(p, "list_datalinks", pcap_list_datalinks(p, &list));
	number(p, "set_datalink", pcap_set_datalink(p, DLT_EN10MB));
	number(p, "snapshot", pcap_snapshot(p));
	number(p, "is_swapped", pcap_is_swapped(p));
	number(p, "major_version", pcap_major_version(p));
	number(p, "minor_version", pcap_minor_version(p));
	number(p, "bufsize", pcap_bufsize(p));
	number(p, "file", pcap_file(p) != NULL);
	number(p, "fileno", pcap_fileno(p));
	number(p, "selectable", pcap_get_selectable_fd(p));
	number(p, "required timeout", pcap_get_required_select_timeout(p) != NULL);
	number(p, "precision", pcap_get_tstamp_precision(p));
	number(p, "can_set_rfmon", pcap_can_set_rfmon(p));
}

static void changing(pcap_t *p)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	struct bpf_insn all[] = { BPF_STMT(BPF_RET | BPF_K, 100) };
	struct bpf_program program = { 1, all }, compiled;
	number(p, "setfilter", pcap_setfilter(p, &program));
	number(p, "compile", pcap_compile(p, &compiled, "ip", 1, 0));
	number(p, "setdirection", pcap_setdirection(p, PCAP_D_IN));
	number(p, "getnonblock", pcap_getnonblock(p, errbuf));
	number(p, errbuf, pcap_setnonblock(p, 1, errbuf));
	number(p, "dump_open", pcap_dump_open(p, "x.pcap") != NULL);
	number(p, "dump_fopen", pcap_dump_fopen(p, fopen("z.pcap", "w")) != NULL);
	number(p, "dump_open_append", pcap_dump_open_append(p, "y.pcap") != NULL);
}

int main(void)
{
	static const char *const devices[] = { "vb", "any", "nodevice0" };
	for (int i = 0; i < 3; i++) {
		char errbuf[PCAP_ERRBUF_SIZE];
		pcap_t *p = pcap_create(devices[i], errbuf);
		printf("%s\n", devices[i]);
		reading(p);
		asking(p);
		changing(p);
		pcap_close(p);
	}
	return 0;
}
