/* Filters on VLAN tags, which the kernel keeps apart from the packet, set while packets are queued. */
#include "../wire.h"
#include "../tags.h"

static void print_size(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	(void)bytes;
	printf(" %u", header->len);
}

static void send_some(int in, int out)
{
	for (size_t i = 0; i < 4; i++) {
		send_tagged(in, &taggings[i == 3 ? 6 : i], 60 + i);
		send_tagged(out, &taggings[i == 3 ? 6 : i], 80 + i);
	}
}

static void replace(int in, int out, int version, const char *expression)
{
	struct bpf_program program;
	pcap_t *p = opened(far, version);
	send_some(in, out);
	settle(p, 8);
	printf("version %d, %s:", version, expression);
	if (pcap_compile(p, &program, expression, 1, PCAP_NETMASK_UNKNOWN) != 0) {
		printf(" %s\n", pcap_geterr(p));
		pcap_close(p);
		return;
	}
	printf(" %d", pcap_setfilter(p, &program));
	pcap_freecode(&program);
	printf(" -> %d,", drain(p, print_size, NULL));
	/* The kernel's own verdict on the same. */
	send_some(in, out);
	sleep_ms(SETTLED);
	printf(" -> %d\n", drain(p, print_size, NULL));
	print_stats(p);
	pcap_close(p);
}

int main(void)
{
	static const char *const expressions[] = {
		"vlan", "vlan 100", "vlan 200", "not vlan", "vlan and ip", "vlan 100 or ip", "ip", "ether[12:2] = 0x0800",
		"ether[12:2] = 0x8100", "udp dst port 2000", "vlan and udp dst port 2000", "len > 120", "greater 130",
	};
	int in = port_of(near), out = port_of(far);
	for (int version = 2; version <= 3; version++)
		for (size_t i = 0; i < sizeof expressions / sizeof expressions[0]; i++)
			if (version == 3 || i % 3 == 0)
				replace(in, out, version, expressions[i]);
	return 0;
}
