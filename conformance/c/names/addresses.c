/* Names and texts of hosts, networks and Ethernet addresses. */
#include "../wire.h"
#include <netdb.h>
#include <pcap/namedb.h>

static void ether(const char *text)
{
	u_char *address = pcap_ether_aton(text);
	printf("ether %s: ", text);
	if (address)
		print_bytes(address, 6);
	printf("\n");
	free(address);
}

/* The header marks the first of these functions as deprecated, but programs still call it. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void host(const char *name)
{
	bpf_u_int32 **address = pcap_nametoaddr(name);
	struct addrinfo *info = pcap_nametoaddrinfo(name);
	u_char *ethernet = pcap_ether_hostton(name);
	printf("host %s: %08x, %s, ethernet %s\n", name, address && *address ? ntohl(**address) : 0,
	       yes(info != NULL), yes(ethernet != NULL));
	for (struct addrinfo *each = info; each; each = each->ai_next)
		printf("  family %d\n", each->ai_family);
	if (info)
		freeaddrinfo(info);
	free(ethernet);
}

int main(void)
{
	static const char *const ethers[] = { "02:00:00:00:00:0a", "2:0:0:0:0:a", "ff-ff-ff-ff-ff-ff", "0123.4567.89ab",
		                              "0123456789ab", "2:0:0:0:0" };
	for (size_t i = 0; i < sizeof ethers / sizeof ethers[0]; i++)
		ether(ethers[i]);
	host("127.0.0.1");
	host("localhost");
	host("nosuchhost.invalid.");
	printf("network loopback: %08x\n", pcap_nametonetaddr("loopback"));
	printf("network nosuchnet: %08x\n", pcap_nametonetaddr("nosuchnet"));
	return 0;
}
