/* Savefiles of live packets: equal byte for byte, for each device, link type and precision, and when appended to. */
#include <pcap/dlt.h>
#include "../wire.h"
#include "../savefile.h"

static void dump(const char *device, int version, int link, int precision, int port)
{
	char path[64];
	snprintf(path, sizeof path, "%s-%d-%d-%d.pcap", device, version, link, precision);
	pcap_t *p = created(device, version);
	pcap_set_snaplen(p, 80);
	pcap_set_tstamp_precision(p, precision);
	activated(p);
	pcap_set_datalink(p, link);
	pcap_setdirection(p, PCAP_D_IN);
	pcap_dumper_t *dumper = pcap_dump_open(p, path);
	if (!dumper)
		fail("pcap_dump_open", pcap_geterr(p));
	printf("%s, at %ld %lld\n", path, pcap_dump_ftell(dumper), (long long)pcap_dump_ftell64(dumper));
	send_numbered(port, 0, 2);
	send_sized(port, 2, 1, 200);
	settle(p, 3);
	printf("  %d packets", drain(p, dump_timeless, dumper));
	printf(", at %ld, flushed %d\n", pcap_dump_ftell(dumper), pcap_dump_flush(dumper));
	pcap_dump_close(dumper);
	print_file(path);
	dumper = pcap_dump_open_append(p, path);
	printf("  appending %s [%s]\n", yes(dumper != NULL), dumper ? "" : pcap_geterr(p));
	if (dumper) {
		send_numbered(port, 7, 1);
		settle(p, 4);
		drain(p, dump_timeless, dumper);
		pcap_dump_close(dumper);
		print_file(path);
	}
	pcap_close(p);
}

/* Passes the dumper's function as the callback, as most programs do. */
static void dump_directly(int port)
{
	struct pcap_pkthdr *header;
	const u_char *bytes;
	char errbuf[PCAP_ERRBUF_SIZE];
	pcap_t *p = opened(far, 3);
	pcap_dumper_t *dumper = pcap_dump_open(p, "direct.pcap");
	send_numbered(port, 0, 50);
	printf("direct: %d\n", pcap_loop(p, 50, pcap_dump, (u_char *)dumper));
	pcap_dump_close(dumper);
	pcap_close(p);
	p = pcap_open_offline("direct.pcap", errbuf);
	unsigned count = 0;
	while (pcap_next_ex(p, &header, &bytes) == 1)
		count += number_of(bytes) == count && header->caplen == SMALLEST;
	printf("  read back %u\n", count);
	pcap_close(p);
}

int main(void)
{
	int port = port_of(near);
	for (int precision = 0; precision <= 1; precision++) {
		dump(far, 2, DLT_EN10MB, precision, port);
		dump(far, 3, DLT_DOCSIS, precision, port);
		dump("any", 3, DLT_LINUX_SLL, precision, port);
		dump("any", 2, DLT_LINUX_SLL2, precision, port);
	}
	dump_directly(port);
	return 0;
}
