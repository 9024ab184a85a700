/* Opens absent devices by pcap_open_live(), and prints the error messages. Usage: missing
   DEVICE... */
#include <pcap/pcap.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		char errbuf[PCAP_ERRBUF_SIZE] = "";
		pcap_t *p = pcap_open_live(argv[i], 65535, 0, 10, errbuf);
		printf("'%s' %d [%s]\n", argv[i], p != NULL, errbuf);
		if (p)
			pcap_close(p);
	}
	return 0;
}
