/* Filters that pcap_setfilter() and pcap_compile() refuse: the previous filter stays in force. */
#include "../wire.h"

static void set(pcap_t *p, const char *what, struct bpf_program *program)
{
	int rc = pcap_setfilter(p, program);
	printf("%s: %d [%s]\n", what, rc, rc ? pcap_geterr(p) : "");
}

static void read_some(pcap_t *p, int port, unsigned expected)
{
	send_numbered(port, 0, 6);
	settle(p, expected);
	printf(" -> %d\n", drain(p, print_number, NULL));
}

static void compile(pcap_t *p, const char *expression)
{
	struct bpf_program program;
	int rc = pcap_compile(p, &program, expression, 1, PCAP_NETMASK_UNKNOWN);
	printf("'%s': %d [%s]\n", expression, rc, rc ? pcap_geterr(p) : "");
	if (rc == 0)
		pcap_freecode(&program);
}

int main(void)
{
	static const char *const expressions[] = { "ip prot", "host nosuchhost.invalid.", "port nosuchport", "vlan 5000",
		                                   "ether host 1", "net 300.0.0.0/8", "(ip", "ip and", "gateway x",
		                                   "ip broadcast", "tcp[", "wlan host 2:0:0:0:0:1", "proto 300",
		                                   "ip[2000000000:4] = 1", "len / 0 = 1", "atalk and iso proto 300" };
	struct bpf_insn no_return[] = { BPF_STMT(BPF_LD | BPF_IMM, 1) };
	struct bpf_insn wild_jump[] = { BPF_JUMP(BPF_JMP | BPF_JA, 5, 0, 0), BPF_STMT(BPF_RET | BPF_K, 1) };
	int port = port_of(near);
	pcap_t *p = opened(far, 3);
	filter(p, "ether[17] & 1 == 1");
	set(p, "none", NULL);
	set(p, "empty", &(struct bpf_program){ 0, NULL });
	set(p, "no instructions", &(struct bpf_program){ 0, no_return });
	set(p, "without a return", &(struct bpf_program){ 1, no_return });
	set(p, "a jump beyond its end", &(struct bpf_program){ 2, wild_jump });
	read_some(p, port, 3);
	for (size_t i = 0; i < sizeof expressions / sizeof expressions[0]; i++)
		compile(p, expressions[i]);
	read_some(p, port, 6);
	pcap_close(p);
	return 0;
}
