/* Compiling with and without optimization, for several link types, snapshot lengths and netmasks. */
#include "../wire.h"

static void show(const char *what, int rc, struct bpf_program *program)
{
	printf("%s: %d\n", what, rc);
	if (rc == 0) {
		bpf_dump(program, 1);
		pcap_freecode(program);
	}
}

/* The header marks the function as deprecated, but programs still call it. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void without_handle(const char *expression, int link)
{
	struct bpf_program program;
	show(expression, pcap_compile_nopcap(77, link, &program, expression, 1, htonl(0xff000000)), &program);
}

int main(void)
{
	struct bpf_program program;
	pcap_t *live = opened(far, 3);
	for (int optimize = 0; optimize <= 1; optimize++) {
		printf("optimize %d\n", optimize);
		show("port 80 or port 443", pcap_compile(live, &program, "port 80 or port 443", optimize, 0), &program);
		show("ip broadcast", pcap_compile(live, &program, "ip broadcast", optimize, htonl(0xffffff00)), &program);
		show("vlan and tcp", pcap_compile(live, &program, "vlan and tcp", optimize, 0), &program);
		show("ip and not ip", pcap_compile(live, &program, "ip and not ip", optimize, 0), &program);
	}
	pcap_close(live);
	live = created(far, 3);
	pcap_set_snaplen(live, 99);
	activated(live);
	show("snaplen 99", pcap_compile(live, &program, NULL, 1, 0), &program);
	pcap_close(live);
	without_handle("tcp port 80", DLT_EN10MB);
	without_handle("ip broadcast", DLT_RAW);
	without_handle("vlan 5", DLT_EN10MB);
	without_handle("wlan type mgt", DLT_EN10MB);
	without_handle("ip", 9999);
	return 0;
}
