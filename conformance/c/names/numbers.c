/* Names of ports, protocols, ethertypes and LLC, also from the data symbol eproto_db. */
#include "../wire.h"
#include <pcap/namedb.h>

struct eproto {
	const char *name;
	u_short number;
};
extern struct eproto eproto_db[];

static void port(const char *name)
{
	int number = -1, protocol = -1, last = -1;
	int rc = pcap_nametoport(name, &number, &protocol);
	printf("port %s: %d %d %d\n", name, rc, number, protocol);
	number = protocol = -1;
	rc = pcap_nametoportrange(name, &number, &last, &protocol);
	printf("range %s: %d %d-%d %d\n", name, rc, number, last, protocol);
}

int main(void)
{
	static const char *const ports[] = { "http", "domain", "ntp", "nosuchport", "80", "65535", "65536", "-1", "1-5",
		                             "http-domain", "5-1", "x-y", "" };
	static const char *const protocols[] = { "tcp", "udp", "icmp", "ipv6-icmp", "nosuch", "6", "" };
	static const char *const links[] = { "ip", "ip6", "arp", "rarp", "aarp", "loopback", "nosuch", "" };
	static const char *const llcs[] = { "iso", "stp", "ipx", "netbeui", "nosuch", "" };
	for (size_t i = 0; i < sizeof ports / sizeof ports[0]; i++)
		port(ports[i]);
	for (size_t i = 0; i < sizeof protocols / sizeof protocols[0]; i++)
		printf("protocol %s: %d\n", protocols[i], pcap_nametoproto(protocols[i]));
	for (size_t i = 0; i < sizeof links / sizeof links[0]; i++)
		printf("ethertype %s: %x\n", links[i], pcap_nametoeproto(links[i]));
	for (size_t i = 0; i < sizeof llcs / sizeof llcs[0]; i++)
		printf("llc %s: %x\n", llcs[i], pcap_nametollc(llcs[i]));
	for (const struct eproto *entry = eproto_db; entry->name; entry++)
		printf("eproto_db %s %x\n", entry->name, entry->number);
	return 0;
}
