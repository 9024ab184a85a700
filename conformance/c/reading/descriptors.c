/* Without a free descriptor, blocking mode can't be set again, and a handle can't be opened. */
#include <sys/resource.h>
#include "../wire.h"

static void exhaust(int *taken, int *count)
{
	struct rlimit few = { 64, 64 };
	setrlimit(RLIMIT_NOFILE, &few);
	for (*count = 0; (taken[*count] = dup(0)) >= 0; ++*count)
		;
}

int main(void)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	int port = port_of(near), taken[128], count;
	pcap_t *p = opened(far, 3);
	printf("%d\n", pcap_setnonblock(p, 1, errbuf));
	exhaust(taken, &count);
	printf("blocking: %d [%s]\n", pcap_setnonblock(p, 0, errbuf), errbuf);
	*errbuf = 0;
	printf("mode: %d\n", pcap_getnonblock(p, errbuf));
	pcap_t *other = pcap_create(far, errbuf);
	printf("create: %s [%s]\n", yes(other != NULL), errbuf);
	if (other) {
		int rc = pcap_activate(other);
		printf("activate: %d [%s]\n", rc, pcap_geterr(other));
		pcap_close(other);
	}
	while (count > 0)
		close(taken[--count]);
	printf("blocking: %d\n", pcap_setnonblock(p, 0, errbuf));
	send_numbered(port, 0, 2);
	printf("read:");
	printf(" -> %d\n", pcap_loop(p, 2, print_number, NULL));
	pcap_close(p);
	return 0;
}
