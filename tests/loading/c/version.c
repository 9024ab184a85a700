/* Prints the library's version, and the error if no handle can be created. */
#include <pcap/pcap.h>
#include <stdio.h>

int main(void)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	pcap_t *p = pcap_create("lo", errbuf);
	printf("%s\n%s\n", pcap_lib_version(), errbuf);
	if (p)
		pcap_close(p);
	return 0;
}
