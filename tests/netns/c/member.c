/* A capturing program. Joins a group by a call if the arguments name a group. Usage: member DEVICE
   SNAPLEN [GROUP MODE]. With SNAPLEN 0 it does not set the snapshot length. Prints the results of
   its calls, then "ready", then captures until it is interrupted. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <pcap/fanout.h>

static pcap_t *p;

static void stop(int signal)
{
	(void)signal;
	pcap_breakloop(p);
}

static void count(u_char *packets, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)header;
	(void)bytes;
	++*(unsigned long *)packets;
}

static int fail(const char *call)
{
	printf("%s: %s\n", call, pcap_geterr(p));
	return 1;
}

int main(int argc, char **argv)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	unsigned long packets = 0;
	int status;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 3) {
		puts("usage: member DEVICE SNAPLEN [GROUP MODE]");
		return 2;
	}
	p = pcap_create(argv[1], errbuf);
	if (p == NULL) {
		printf("pcap_create: %s\n", errbuf);
		return 1;
	}
	pcap_set_timeout(p, 50);
	if (atoi(argv[2]) != 0)
		pcap_set_snaplen(p, atoi(argv[2]));
	if (argc > 4 && pcap_fanout(p, atoi(argv[3]), argv[4]) != 0)
		return fail("pcap_fanout");
	status = pcap_activate(p);
	if (status < 0)
		return fail("pcap_activate");
	if (status > 0)
		printf("warning %d: %s\n", status, pcap_geterr(p));
	printf("group %d, snaplen %d\n", pcap_fanout_group(p), pcap_snapshot(p));
	signal(SIGINT, stop);
	puts("ready");
	if (pcap_loop(p, -1, count, (u_char *)&packets) == PCAP_ERROR)
		return fail("pcap_loop");
	printf("%lu packets\n", packets);
	pcap_close(p);
	return 0;
}
