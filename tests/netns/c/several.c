/* Captures on several devices with one handle. Prints each packet's device mark and number, and
   whether the time stamps are in order. Usage: several DEVICES MODE COUNT [FILTER]. */
#include <pcap/pcap.h>
#include <pcap/fanout.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int packets, unordered;
static struct timeval last;

static void callback(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
	(void)user;
	if (timercmp(&header->ts, &last, <))
		unordered++;
	last = header->ts;
	packets++;
	/* The source address of the frame contains the number of the wire and the frame's number on it. */
	printf("packet %u %u\n", data[6], (unsigned)data[10] << 8 | data[11]);
}

static int fail(pcap_t *p, const char *what)
{
	printf("%s: %s\n", what, pcap_geterr(p));
	return 1;
}

/* Counts this namespace's packet sockets that receive all protocols, by a column of
   /proc/net/packet. */
static int listening(void)
{
	char line[256];
	int count = 0;
	FILE *table = fopen("/proc/self/net/packet", "r");

	while (table != NULL && fgets(line, sizeof line, table) != NULL)
		count += strstr(line, " 0003 ") != NULL;
	if (table != NULL)
		fclose(table);
	return count;
}

int main(int argc, char **argv)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	pcap_t *p = argc > 3 ? pcap_create(argv[1], errbuf) : NULL;
	int count = argc > 3 ? atoi(argv[3]) : 0, n = 0;
	struct pcap_stat stat;

	if (p == NULL) {
		printf("pcap_create: %s\n", errbuf);
		return 1;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	pcap_set_timeout(p, 20);
	pcap_set_immediate_mode(p, strcmp(argv[2], "immediate") == 0);
	if (strcmp(argv[2], "new") == 0 && pcap_fanout(p, PCAP_FANOUT_NEW, "lb") != 0)
		return fail(p, "pcap_fanout");
	if (strcmp(argv[2], "number") == 0 && pcap_fanout(p, 7, "lb") != 0)
		return fail(p, "pcap_fanout");
	if (pcap_activate(p) < 0) {
		printf("listening %d\n", listening());
		return fail(p, "pcap_activate");
	}
	if (argc > 4) {
		struct bpf_program program;

		if (pcap_compile(p, &program, argv[4], 1, PCAP_NETMASK_UNKNOWN) != 0 || pcap_setfilter(p, &program) != 0)
			return fail(p, "filter");
		pcap_freecode(&program);
	}
	if (strcmp(argv[2], "select") == 0 && pcap_setnonblock(p, 1, errbuf) != 0)
		return fail(p, errbuf);
	printf("group %d\nready\n", pcap_fanout_group(p));
	alarm(60);
	while (packets < count && n >= 0) {
		if (strcmp(argv[2], "select") == 0) {
			struct pollfd fd = { .fd = pcap_get_selectable_fd(p), .events = POLLIN };

			poll(&fd, 1, -1);
		}
		n = pcap_dispatch(p, count - packets, callback, NULL);
	}
	if (n < 0)
		fail(p, "pcap_dispatch");
	if (pcap_stats(p, &stat) != 0)
		return fail(p, "pcap_stats");
	printf("delivered %d received %u dropped %u unordered %d\n", packets, stat.ps_recv, stat.ps_drop, unordered);
	pcap_close(p);
	return 0;
}
