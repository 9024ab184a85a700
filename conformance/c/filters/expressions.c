/* The compiled code of many expressions, on live handles of all kinds and on handles without a device. */
#include <pcap/dlt.h>
#include "../wire.h"

static const char *const expressions[] = {
	"", "ip", "ip6", "arp", "tcp", "udp", "icmp", "icmp6", "vlan", "vlan 100", "vlan 100 and ip", "vlan and vlan",
	"vlan and vlan 7", "not vlan", "vlan 5 or vlan 6", "ip or (vlan and ip)", "inbound", "outbound",
	"inbound and tcp", "ifindex 3", "host 192.0.2.1", "src net 192.0.2.0/24", "net 2001:db8::/32",
	"tcp port 80", "portrange 1000-2000", "tcp[tcpflags] & tcp-syn != 0", "ether host 2:0:0:0:0:1",
	"ether[12:2] = 0x8100", "ether proto 0x88b5", "broadcast", "multicast", "ip multicast", "len > 100", "less 60",
	"greater 1000", "mpls", "mpls 5 and ip", "pppoes", "pppoes and ip", "geneve", "stp", "llc", "ip proto 47",
	"ip6 protochain 6", "icmp[icmptype] = icmp-echo", "dst host 192.0.2.1 and not port 22 and (tcp or udp)",
	"vlan and mpls", "rarp", "sctp port 5", "wlan type mgt", "link[0] = 1", "ip[8] + 1 > len - 40", "port domain",
};

static void compile_all(pcap_t *p, const char *kind)
{
	for (size_t i = 0; i < sizeof expressions / sizeof expressions[0]; i++) {
		struct bpf_program program;
		int rc = pcap_compile(p, &program, expressions[i], 1, htonl(0xffffff00));
		printf("%s '%s': %d\n", kind, expressions[i], rc);
		if (rc != 0) {
			printf("  %s\n", pcap_geterr(p));
			continue;
		}
		for (u_int at = 0; at < program.bf_len; at++) {
			const struct bpf_insn *code = &program.bf_insns[at];
			printf(" %x:%u:%u:%x", code->code, code->jt, code->jf, code->k);
		}
		printf("\n");
		pcap_freecode(&program);
	}
	pcap_close(p);
}

int main(void)
{
	pcap_t *cooked = opened("any", 3);
	compile_all(opened(far, 3), "ethernet");
	compile_all(opened("lo", 2), "loopback");
	compile_all(opened("any", 3), "any");
	pcap_set_datalink(cooked, DLT_LINUX_SLL2);
	compile_all(cooked, "any, SLL2");
	compile_all(pcap_open_dead(DLT_EN10MB, 65535), "dead ethernet");
	compile_all(pcap_open_dead(DLT_RAW, 100), "dead raw");
	compile_all(pcap_open_dead(DLT_IEEE802_11, 65535), "dead 802.11");
	return 0;
}
