/* The list of devices: names, descriptions, flags and addresses of each. */
#include "../wire.h"

static void print_address(const char *what, const struct sockaddr *address)
{
	char text[64] = "none";
	if (!address)
		return;
	if (address->sa_family == AF_INET)
		inet_ntop(AF_INET, &((const struct sockaddr_in *)address)->sin_addr, text, sizeof text);
	else if (address->sa_family == AF_INET6)
		inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)address)->sin6_addr, text, sizeof text);
	else if (address->sa_family == AF_PACKET) {
		const struct sockaddr_ll *link = (const struct sockaddr_ll *)address;
		snprintf(text, sizeof text, "type %d, %02x:..:%02x", link->sll_hatype, link->sll_addr[0],
		         link->sll_addr[5]);
	}
	printf(" %s %d %s", what, address->sa_family, text);
}

int main(void)
{
	for (int round = 0; round < 2; round++) {
		char errbuf[PCAP_ERRBUF_SIZE] = "";
		pcap_if_t *devices = NULL;
		int rc = pcap_findalldevs(&devices, errbuf);
		printf("%d [%s]\n", rc, errbuf);
		for (pcap_if_t *device = devices; device; device = device->next) {
			printf("%s, %s, flags %x\n", device->name, device->description ? device->description : "none",
			       device->flags);
			for (pcap_addr_t *address = device->addresses; address; address = address->next) {
				print_address("address", address->addr);
				print_address("mask", address->netmask);
				print_address("broadcast", address->broadaddr);
				print_address("peer", address->dstaddr);
				printf("\n");
			}
		}
		pcap_freealldevs(devices);
		if (round == 0)
			change("ip link set va down; echo 0 >/proc/sys/net/ipv6/conf/lo/disable_ipv6;"
			       "ip address add 2001:db8::1/64 dev lo nodad",
			       far, "LOWERLAYERDOWN");
	}
	pcap_freealldevs(NULL);
	return 0;
}
