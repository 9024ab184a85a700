/* The packets that each of many expressions passes, tagged and untagged, received and sent. */
#include "../wire.h"
#include "../tags.h"

static void mark(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	/* The payload's size identifies the frame. */
	const u_char *at = memchr(bytes + 12, 0x45, header->caplen - 12);
	unsigned size = at ? (unsigned)(at[2] << 8 | at[3]) - 28 - 60 : 99;
	if (size < 2 * TAGGINGS)
		((char *)user)[size] = 'x';
	else
		((char *)user)[2 * TAGGINGS] = '?';
}

int main(void)
{
	static const char *const expressions[] = {
		"", "ip", "udp", "vlan", "vlan 100", "vlan 200", "vlan and vlan", "vlan 200 and vlan 100",
		"vlan 100 and ip", "vlan and udp port 2000", "not vlan", "ip or vlan", "vlan or ip", "ether[12:2] = 0x8100",
		"ether[12:2] = 0x0800", "ether proto 0x88a8", "port 1000",
		"src host 192.0.2.1", "ether src 2:0:0:0:0:a", "less 110", "tcp", "ip6 or arp", "vlan 0",
		"link[0] = 2", "ip[0] & 0xf = 5", "ip and udp[4:2] > 75",
	};
	int in = port_of(near), out = port_of(far);
	for (size_t i = 0; i < sizeof expressions / sizeof expressions[0]; i++) {
		struct bpf_program program;
		char marks[2 * TAGGINGS + 2];
		memset(marks, '.', sizeof marks - 1);
		marks[sizeof marks - 1] = 0;
		pcap_t *p = opened(far, 2 + (int)(i % 2));
		if (pcap_compile(p, &program, expressions[i], 1, PCAP_NETMASK_UNKNOWN) != 0) {
			printf("%s: %s\n", expressions[i], pcap_geterr(p));
		} else {
			int rc = pcap_setfilter(p, &program);
			for (size_t tag = 0; tag < TAGGINGS; tag++) {
				send_tagged(in, &taggings[tag], 60 + 2 * tag);
				send_tagged(out, &taggings[tag], 60 + 2 * tag + 1);
			}
			sleep_ms(settled());
			int count = drain(p, mark, marks);
			printf("%s: %d, %d %s\n", marks, rc, count, expressions[i]);
			pcap_freecode(&program);
		}
		pcap_close(p);
	}
	return 0;
}
