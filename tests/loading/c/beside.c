/* A program that is linked with the system's library opens our library by dlopen(), with
   RTLD_LOCAL. Usage: beside LIBRARY. Prints in which group our library's handles are. */
#include <dlfcn.h>
#include <pcap/pcap.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	void *ours = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW | RTLD_LOCAL);
	if (!ours) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	pcap_t *(*open_live)(const char *, int, int, int, char *) =
		(pcap_t * (*)(const char *, int, int, int, char *)) dlsym(ours, "pcap_open_live");
	pcap_t *(*create)(const char *, char *) =
		(pcap_t * (*)(const char *, char *)) dlsym(ours, "pcap_create");
	int (*activate)(pcap_t *) = (int (*)(pcap_t *))dlsym(ours, "pcap_activate");
	int (*group)(pcap_t *) = (int (*)(pcap_t *))dlsym(ours, "pcap_fanout_group");
	void (*close)(pcap_t *) = (void (*)(pcap_t *))dlsym(ours, "pcap_close");
	pcap_t *opened = open_live("lo", 100, 0, 10, errbuf);
	pcap_t *created = create("lo", errbuf);
	if (!opened || !created || activate(created) < 0) {
		fprintf(stderr, "%s\n", errbuf);
		return 2;
	}
	/* The program's own calls still reach the system's library. */
	fprintf(stderr, "%s\n", pcap_lib_version());
	printf("open_live %d, create %d\n", group(opened), group(created));
	close(created);
	close(opened);
	return 0;
}
