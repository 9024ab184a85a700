/* Opens a device by pcap_open_live(), which has no status for warnings. Usage: openlive DEVICE.
   Prints the text in errbuf. */
#include "scene.h"

int main(int argc, char **argv)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	pcap_t *p;

	if (argc != 2)
		fail("usage", "openlive DEVICE");
	p = pcap_open_live(argv[1], 96, 0, 50, errbuf);
	printf("open %d, group %d, errbuf: %s\n", p != NULL, p != NULL ? pcap_fanout_group(p) : -1, errbuf);
	if (p != NULL)
		pcap_close(p);
	return 0;
}
