/* Opens a live handle on the device of its argument, or on lo, and prints whether the process has
   raised privileges (AT_SECURE). */
#include <pcap/pcap.h>
#include <stdio.h>
#include <sys/auxv.h>

int main(int argc, char **argv)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	pcap_t *p = pcap_open_live(argc > 1 ? argv[1] : "lo", 100, 0, 10, errbuf);
	printf("secure %lu, version %s, open %d, %s\n", getauxval(AT_SECURE), pcap_lib_version(),
	       p != NULL, errbuf);
	if (p)
		pcap_close(p);
	return 0;
}
