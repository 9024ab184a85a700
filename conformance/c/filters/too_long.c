/* Filters that are too long for the kernel run in user space, with a warning on standard error. */
#include "../wire.h"

static void print_cut(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	print_number(user, header, bytes);
	printf(":%u", header->caplen);
}

static void length(int port, int version, unsigned instructions)
{
	struct bpf_insn *code = calloc(instructions, sizeof *code);
	struct bpf_program program = { instructions, code };
	pcap_t *p = opened(far, version);
	for (unsigned i = 0; i < instructions; i++)
		code[i] = (struct bpf_insn)BPF_STMT(BPF_LD | BPF_IMM, i);
	/* Passes odd numbers, cut to 32 bytes. */
	code[instructions - 4] = (struct bpf_insn)BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 17);
	code[instructions - 3] = (struct bpf_insn)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 1, 0, 1);
	code[instructions - 2] = (struct bpf_insn)BPF_STMT(BPF_RET | BPF_K, 32);
	code[instructions - 1] = (struct bpf_insn)BPF_STMT(BPF_RET | BPF_K, 0);
	send_numbered(port, 0, 4);
	settle(p, 4);
	int rc = pcap_setfilter(p, &program);
	printf("version %d, %u instructions: %d [%s]\n", version, instructions, rc, rc ? pcap_geterr(p) : "");
	send_numbered(port, 10, 8);
	sleep_ms(settled());
	printf(" -> %d\n", drain(p, print_cut, NULL));
	print_stats(p);
	/* A short filter replaces the long one. */
	filter(p, "ether[17] & 3 == 0");
	send_numbered(port, 20, 8);
	sleep_ms(settled());
	printf("  short again:");
	printf(" -> %d\n", drain(p, print_cut, NULL));
	print_stats(p);
	pcap_close(p);
	free(code);
}

int main(void)
{
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		length(port, version, 100);
		length(port, version, 4096);
		length(port, version, 4097);
		length(port, version, 65535);
		length(port, version, 65536);
	}
	return 0;
}
