/* pcap_lookupnet() for devices with and without addresses, and pcap_lookupdev(). */
#include "../wire.h"

static void net(const char *device)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	bpf_u_int32 net = 0x11111111, mask = 0x22222222;
	int rc = pcap_lookupnet(device, &net, &mask, errbuf);
	printf("%s: %d [%s] %08x %08x\n", device ? device : "none", rc, errbuf, ntohl(net), ntohl(mask));
}

/* The header marks the function as deprecated, but programs still call it. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void device(void)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	const char *first = pcap_lookupdev(errbuf), *again = pcap_lookupdev(errbuf);
	printf("lookupdev: %s [%s], the same again %s\n", first ? first : "none", errbuf, yes(first == again));
}

int main(void)
{
	net(far);
	net(near);
	net("lo");
	net("any");
	net(NULL);
	net("nodevice0");
	net("a-name-that-is-longer-than-any-device-may-have");
	device();
	change("ip link set vb down; ip link set lo down", near, "LOWERLAYERDOWN");
	device();
	if (system("ip link del va"))
		printf("not removed\n");
	device();
	return 0;
}
