/* Opens a handle in a callback of pcap_loop(), in a program that has also loaded the system's
   library. Usage: inside LIBRARY. Prints in which group the handles are. */
#include <dlfcn.h>
#include "handle.h"

static int (*group)(pcap_t *);

static void open_another(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	pcap_t *p = open_source("live:lo");
	(void)header;
	(void)bytes;
	if (p) {
		printf("inside %d\n", group(p));
		pcap_close(p);
	}
	pcap_breakloop((pcap_t *)user);
}

int main(int argc, char **argv)
{
	/* Loads the system's library before the first call of libpcap, because in the first call
	   our library searches for the system's library itself. */
	if (!dlopen(argc > 1 ? argv[1] : "", RTLD_NOW | RTLD_LOCAL)) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	group = (int (*)(pcap_t *))dlsym(RTLD_DEFAULT, "pcap_fanout_group");
	pcap_t *p = open_source("live:lo");
	if (!p || !group)
		return 2;
	printf("outside %d\n", group(p));
	send_some("live:lo", 4);
	pcap_loop(p, -1, open_another, (u_char *)p);
	pcap_close(p);
	return 0;
}
