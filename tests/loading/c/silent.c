/* Makes the calls that a program makes at its start, and prints nothing. So any output comes
   from the library. */
#include <pcap/pcap.h>

int main(int argc, char **argv)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	struct bpf_program program;
	pcap_t *p = pcap_create("nodevice0", errbuf);
	if (!p || pcap_activate(p) >= 0)
		return 1;
	pcap_close(p);
	if (pcap_open_live("nodevice0", 100, 0, 10, errbuf))
		return 2;
	p = pcap_open_offline(argc > 1 ? argv[1] : "", errbuf);
	if (!p || pcap_compile(p, &program, "ip", 1, 0) || pcap_setfilter(p, &program))
		return 3;
	pcap_freecode(&program);
	pcap_close(p);
	return 0;
}
