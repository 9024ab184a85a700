/* pcap_init(): its results, and its effect on later calls. */
#include "../wire.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void lookup(const char *when)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	const char *device = pcap_lookupdev(errbuf);
	printf("%s: %s [%s]\n", when, device ? device : "none", errbuf);
}

static void init(unsigned option)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	int rc = pcap_init(option, errbuf);
	printf("init %u: %d [%s]\n", option, rc, errbuf);
}

int main(void)
{
	lookup("before");
	init(77);
	init(PCAP_CHAR_ENC_UTF_8);
	lookup("after");
	init(PCAP_CHAR_ENC_UTF_8);
	init(PCAP_CHAR_ENC_LOCAL);
	pcap_t *p = opened("lo", 3);
	printf("snaplen: %d [%s]\n", pcap_set_snaplen(p, 1), pcap_geterr(p));
	pcap_close(p);
	return 0;
}
