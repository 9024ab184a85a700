/* Runs the code examples of the paper that proposed the calls for channels, with the paper's
   prototypes. Usage: paper DEVICE. Prints the values that it reads back. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pcap/fanout.h>

static char errbuf[PCAP_ERRBUF_SIZE];

static void fail(const char *call)
{
	printf("%s: %s, %s\n", call, errbuf, strerror(errno));
	exit(1);
}

static void show(const char *device)
{
	struct pcap_channels now;
	cpu_set_t cpuset;

	if (pcap_get_channels(device, &now, errbuf) != 1)
		fail("pcap_get_channels");
	printf("%u channels\n", now.combined_count);
	for (int channel = 0; channel < 2; channel++) {
		if (pcap_channel_getaffinity(device, channel, &cpuset) != 1)
			fail("pcap_channel_getaffinity");
		for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
			if (CPU_ISSET(cpu, &cpuset))
				printf("channel %d on CPU %d\n", channel, cpu);
	}
}

int main(int argc, char **argv)
{
	const char *eth0 = argc > 1 ? argv[1] : "";
	struct pcap_channels ch = { .combined_count = 2 };
	cpu_set_t cpuset;

	if (pcap_set_channels(eth0, &ch, PCAP_COMBINED_CHANNELS, errbuf) != 1)
		fail("pcap_set_channels");
	CPU_ZERO(&cpuset);
	CPU_SET(0, &cpuset);
	if (pcap_channel_setaffinity(eth0, 0, &cpuset) != 1)
		fail("pcap_channel_setaffinity");
	CPU_ZERO(&cpuset);
	CPU_SET(1, &cpuset);
	if (pcap_channel_setaffinity(eth0, 1, &cpuset) != 1)
		fail("pcap_channel_setaffinity");
	show(eth0);
	return 0;
}
