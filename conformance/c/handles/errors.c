/* Error messages: pcap_geterr() and pcap_perror(); a later success does not clear them. */
#include "../wire.h"

int main(void)
{
	struct bpf_program program;
	pcap_t *p = opened(far, 3), *other = opened(far, 3);
	printf("[%s]\n", pcap_geterr(p));
	pcap_perror(p, "nothing yet");
	pcap_compile(p, &program, "no such expression", 1, 0);
	printf("[%s] [%s]\n", pcap_geterr(p), pcap_geterr(other));
	pcap_perror(p, "compile");
	pcap_perror(p, "");
	pcap_set_snaplen(p, 1);
	printf("[%s]\n", pcap_geterr(p));
	filter(p, "ip");
	printf("[%s]\n", pcap_geterr(p));
	/* The text belongs to the handle, and a program may write to it. */
	strcpy(pcap_geterr(p), "my own");
	pcap_perror(p, "program");
	pcap_close(other);
	printf("[%s]\n", pcap_geterr(p));
	pcap_close(p);
	return 0;
}
