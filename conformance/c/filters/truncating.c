/* Filters whose return value truncates packets, with VLAN tags and different snapshot lengths. */
#include "../wire.h"
#include "../tags.h"

static void print_lengths(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	printf(" %u/%u:%02x", header->caplen, header->len, bytes[header->caplen - 1]);
}

static void capture(int port, int version, int snaplen, unsigned length)
{
	struct bpf_insn cut[] = { BPF_STMT(BPF_RET | BPF_K, length) };
	struct bpf_program program = { 1, cut };
	pcap_t *p = created(far, version);
	pcap_set_snaplen(p, snaplen);
	activated(p);
	int rc = pcap_setfilter(p, &program);
	for (int i = 0; i < 8; i++)
		send_tagged(port, &taggings[i], (size_t)(20 + 30 * i));
	settle(p, 8);
	printf("version %d, snaplen %d, filter returns %u: %d", version, snaplen, length, rc);
	printf(" -> %d\n", drain(p, print_lengths, NULL));
	pcap_close(p);
}

int main(void)
{
	static const unsigned lengths[] = { 0xffffffff, 262144, 200, 100, 64, 32, 14, 13, 12 };
	int port = port_of(near);
	for (int version = 2; version <= 3; version++)
		for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
			capture(port, version, 262144, lengths[i]);
			if (i % 2)
				capture(port, version, 80, lengths[i]);
		}
	return 0;
}
