/* Calls most functions that work without packets. The output must be the same on the system's
   libpcap and on ours. */
#include <dirent.h>
#include <pcap/pcap.h>
#include <pcap/namedb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void count(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	*(unsigned long *)user += header->caplen + bytes[0];
}

static void read_savefile(const char *path)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	unsigned long sum = 0;
	pcap_t *p = pcap_open_offline(path, errbuf);
	if (!p) {
		printf("offline: %s\n", errbuf);
		return;
	}
	struct bpf_program program;
	printf("compile: %d\n", pcap_compile(p, &program, "udp port 53 or vlan", 1, PCAP_NETMASK_UNKNOWN));
	bpf_dump(&program, 1);
	pcap_freecode(&program);
	printf("bad: %d %s\n", pcap_compile(p, &program, "udp prot 53", 1, 0), pcap_geterr(p));
	struct pcap_pkthdr *header;
	const u_char *bytes;
	printf("next: %d\n", pcap_next_ex(p, &header, &bytes));
	printf("loop: %d", pcap_loop(p, -1, count, (u_char *)&sum));
	printf(" %lu\n", sum);
	printf("version: %d.%d link %d snap %d\n", pcap_major_version(p), pcap_minor_version(p),
	       pcap_datalink(p), pcap_snapshot(p));
	pcap_close(p);
}

/* Releases a list from the library by free(), as some programs do. So both libraries must use
   the program's malloc(). */
static void link_types(void)
{
	int *list = NULL;
	pcap_t *p = pcap_open_dead(DLT_EN10MB, 65535);
	int types = pcap_list_datalinks(p, &list);
	printf("links: %d %s\n", types, pcap_datalink_val_to_name(list[0]));
	free(list);
	pcap_dumper_t *dumper = pcap_dump_open(p, "/dev/null");
	printf("dump: %d %ld\n", dumper != NULL, dumper ? pcap_dump_ftell(dumper) : -1);
	pcap_dump_close(dumper);
	pcap_close(p);
}

static void missing_device(void)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	pcap_t *p = pcap_open_live("nodevice0", 100, 0, 10, errbuf);
	printf("open_live: %d %s\n", p != NULL, errbuf);
	p = pcap_create("nodevice0", errbuf);
	int status = pcap_activate(p);
	printf("activate: %d %s %s\n", status, pcap_statustostr(status), pcap_geterr(p));
	printf("stats: %d\n", pcap_stats(p, &(struct pcap_stat){0}));
	printf("snaplen: %d\n", pcap_set_snaplen(p, 1));
	pcap_close(p);
	bpf_u_int32 net, mask;
	printf("lookupnet: %d %s\n", pcap_lookupnet("nodevice0", &net, &mask, errbuf), errbuf);
}

int main(int argc, char **argv)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	int before = threads();
	pcap_if_t *devices = NULL;
	fprintf(stderr, "%s\n", pcap_lib_version());
	printf("findalldevs: %d %s\n", pcap_findalldevs(&devices, errbuf), errbuf);
	for (pcap_if_t *device = devices; device; device = device->next)
		printf("  %s\n", device->name);
	pcap_freealldevs(devices);
	link_types();
	missing_device();
	read_savefile(argc > 1 ? argv[1] : "");
	read_savefile("/nonexistent/file");
	printf("names: %d %d\n", pcap_nametoport("ntp", &(int){0}, &(int){0}), pcap_nametoeproto("arp"));
	printf("tstamp: %s\n", pcap_tstamp_type_val_to_name(PCAP_TSTAMP_HOST));
	printf("threads: %d\n", threads() - before);
	return 0;
}
