/* Savefiles read back: every opening function, precision and byte order, filters, the end, and query functions. */
#include <fcntl.h>
#include "../wire.h"
#include "../savefile.h"

static void print_packet(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	printf(" %u@%ld.%ld:%u/%u", number_of(bytes), (long)header->ts.tv_sec, (long)header->ts.tv_usec, header->caplen,
	       header->len);
}

static void ask(pcap_t *p)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	struct pcap_stat stat;
	int *list = NULL;
	printf("  link %d, extension %d, snapshot %d, swapped %d, version %d.%d, precision %d, buffer %d\n",
	       pcap_datalink(p), pcap_datalink_ext(p), pcap_snapshot(p), pcap_is_swapped(p), pcap_major_version(p),
	       pcap_minor_version(p), pcap_get_tstamp_precision(p), pcap_bufsize(p));
	printf("  file %s, descriptor %s, selectable %s\n", yes(pcap_file(p) != NULL), yes(pcap_fileno(p) >= 0),
	       yes(pcap_get_selectable_fd(p) >= 0));
	printf("  stats %d [%s]\n", pcap_stats(p, &stat), pcap_geterr(p));
	printf("  inject %d [%s]\n", pcap_inject(p, "x", 1), pcap_geterr(p));
	printf("  direction %d [%s]\n", pcap_setdirection(p, PCAP_D_IN), pcap_geterr(p));
	printf("  nonblock %d", pcap_setnonblock(p, 1, errbuf));
	printf(" %d [%s]\n", pcap_getnonblock(p, errbuf), errbuf);
	printf("  links %d, set_datalink %d [%s]\n", pcap_list_datalinks(p, &list), pcap_set_datalink(p, 9), pcap_geterr(p));
	pcap_free_datalinks(list);
	printf("  activate %d, snaplen %d, rfmon %d\n", pcap_activate(p), pcap_set_snaplen(p, 9), pcap_can_set_rfmon(p));
}

static void read_all(pcap_t *p, const char *what, const char *errbuf)
{
	struct pcap_pkthdr *header;
	const u_char *bytes;
	printf("%s: %s [%s]\n", what, yes(p != NULL), p ? "" : errbuf);
	if (!p)
		return;
	ask(p);
	printf(" -> %d;", pcap_dispatch(p, 2, print_packet, NULL));
	filter(p, "ether[17] & 1 == 0");
	pcap_breakloop(p);
	printf(" -> %d;", pcap_loop(p, 1, print_packet, NULL));
	printf(" -> %d;", pcap_loop(p, 1, print_packet, NULL));
	printf(" -> %d;", pcap_loop(p, -1, print_packet, NULL));
	printf(" -> %d;", pcap_dispatch(p, -1, print_packet, NULL));
	printf(" next_ex %d\n", pcap_next_ex(p, &header, &bytes));
	pcap_close(p);
}

int main(void)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	write_savefile("micro.pcap", 0xa1b2c3d4, 0, 9);
	write_savefile("nano.pcap", 0xa1b23c4d, 0, 9);
	write_savefile("swapped.pcap", 0xa1b2c3d4, 1, 9);
	read_all(pcap_open_offline("micro.pcap", errbuf), "micro", errbuf);
	read_all(pcap_open_offline("nano.pcap", errbuf), "nano", errbuf);
	read_all(pcap_open_offline_with_tstamp_precision("micro.pcap", PCAP_TSTAMP_PRECISION_NANO, errbuf), "micro as nano",
	         errbuf);
	read_all(pcap_open_offline_with_tstamp_precision("nano.pcap", PCAP_TSTAMP_PRECISION_NANO, errbuf), "nano as nano",
	         errbuf);
	read_all(pcap_open_offline_with_tstamp_precision("nano.pcap", 5, errbuf), "precision 5", errbuf);
	read_all(pcap_fopen_offline(fopen("swapped.pcap", "r"), errbuf), "swapped", errbuf);
	read_all(pcap_fopen_offline_with_tstamp_precision(fopen("nano.pcap", "r"), PCAP_TSTAMP_PRECISION_MICRO, errbuf),
	         "nano as micro", errbuf);
	dup2(open("micro.pcap", O_RDONLY), 0);
	read_all(pcap_open_offline("-", errbuf), "standard input", errbuf);
	read_all(pcap_open_offline("absent.pcap", errbuf), "absent", errbuf);
	read_all(pcap_open_offline(".", errbuf), "a directory", errbuf);
	read_all(pcap_open_offline(NULL, errbuf), "no name", errbuf);
	read_all(pcap_open_offline("/dev/null", errbuf), "empty", errbuf);
	return 0;
}
