/* Uses a live handle from its creation to its close, with traffic from this program. Prints only
   results that are the same in each run. */
#include <dirent.h>
#include "handle.h"

static int threads(void)
{
	int count = 0;
	DIR *dir = opendir("/proc/self/task");
	for (struct dirent *entry; dir && (entry = readdir(dir));)
		count += entry->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return count;
}

static int describe(pcap_t *p)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	int *list = NULL;
	int types = pcap_list_datalinks(p, &list);
	printf("link %d of %d, snap %d, buffer %d, nonblock %d\n", pcap_datalink(p), types,
	       pcap_snapshot(p), pcap_bufsize(p), pcap_getnonblock(p, errbuf));
	printf("fd %d selectable %d swapped %d\n", pcap_fileno(p) >= 0, pcap_get_selectable_fd(p) >= 0,
	       pcap_is_swapped(p));
	pcap_free_datalinks(list);
	return 0;
}

static int filter(pcap_t *p, const char *text)
{
	struct bpf_program program;
	int rc = pcap_compile(p, &program, text, 1, PCAP_NETMASK_UNKNOWN);
	if (rc == 0) {
		bpf_dump(&program, 1);
		rc = pcap_setfilter(p, &program);
		pcap_freecode(&program);
	}
	return rc;
}

int main(int argc, char **argv)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	struct pcap_stat stat = {0};
	int before = threads();
	pcap_t *p = pcap_create(argc > 1 ? argv[1] : "lo", errbuf);
	if (!p)
		return 1;
	printf("set %d %d %d %d\n", pcap_set_snaplen(p, 96), pcap_set_timeout(p, 20),
	       pcap_set_buffer_size(p, 1 << 20), pcap_set_promisc(p, 1));
	printf("activate %d %s\n", pcap_activate(p), pcap_geterr(p));
	printf("again %d %s\n", pcap_set_snaplen(p, 1), pcap_geterr(p));
	describe(p);
	printf("filter %d\n", filter(p, "udp port 9 or vlan 5"));
	printf("direction %d\n", pcap_setdirection(p, PCAP_D_IN));
	send_some("live:lo", 20);
	printf("read %d\n", read_rest(p, 20));
	/* On a loopback device each packet passes twice. libpcap rejects the copies of one
	   direction, but the kernel's counters include them. */
	printf("stats %d", pcap_stats(p, &stat));
	printf(" %u %u %u\n", stat.ps_recv, stat.ps_drop, stat.ps_ifdrop);
	printf("threads: %d\n", threads() - before);
	pcap_close(p);
	return 0;
}
