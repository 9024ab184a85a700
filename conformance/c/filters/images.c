/* BPF programs without a handle: dumped in each form, printed by instruction, validated, and run on packets. */
#include "../wire.h"

static struct bpf_program compiled(pcap_t *p, const char *expression)
{
	struct bpf_program program;
	if (pcap_compile(p, &program, expression, 1, PCAP_NETMASK_UNKNOWN) != 0)
		fail("pcap_compile", pcap_geterr(p));
	return program;
}

int main(void)
{
	unsigned char frame[2048];
	pcap_t *p = pcap_open_dead(DLT_EN10MB, 100);
	struct bpf_program program = compiled(p, "udp dst port 9 or (ip6 and tcp) or len > 400");
	for (int form = 0; form <= 4; form++) {
		printf("form %d\n", form);
		bpf_dump(&program, form);
	}
	for (int code = 0; code < 256; code++)
		printf("%s\n", bpf_image(&(struct bpf_insn){ (u_short)code, 1, 2, 77 }, code));
	printf("valid: %d", bpf_validate(program.bf_insns, (int)program.bf_len));
	printf(" %d %d\n", bpf_validate(program.bf_insns, (int)program.bf_len - 1), bpf_validate(program.bf_insns, 0));
	for (unsigned to = 8; to <= 10; to++) {
		u_int size = (u_int)datagram(frame, 1, to, 20);
		struct pcap_pkthdr header = { .caplen = size, .len = size };
		printf("port %u: %u", to, bpf_filter(program.bf_insns, frame, size, size));
		printf(" %u", bpf_filter(program.bf_insns, frame, size, 30));
		printf(" %u", bpf_filter(program.bf_insns, frame, 500, 30));
		printf(" %d", pcap_offline_filter(&program, &header, frame));
		header.caplen = 20;
		printf(" %d\n", pcap_offline_filter(&program, &header, frame));
	}
	printf("without a program: %u\n", bpf_filter(NULL, frame, 60, 60));
	printf("without instructions: %d\n", pcap_offline_filter(&(struct bpf_program){ 0, NULL },
	                                                        &(struct pcap_pkthdr){ .caplen = 60, .len = 60 }, frame));
	pcap_freecode(&program);
	printf("freed: %u %s\n", program.bf_len, yes(program.bf_insns == NULL));
	pcap_freecode(&program);
	pcap_close(p);
	return 0;
}
