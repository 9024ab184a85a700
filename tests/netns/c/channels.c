/* Checks call by call that channels behave as pcap/fanout.h describes. Usage: channels DEVICE. The
   device has 4 receive channels without interrupts. The program leaves it with 2 channels. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pcap/fanout.h>

static char errbuf[PCAP_ERRBUF_SIZE];

#define CHECK(condition) check(condition, #condition, __LINE__)

static void check(int holds, const char *condition, int line)
{
	if (holds)
		return;
	printf("channels.c:%d: %s: %s, %s\n", line, condition, errbuf, strerror(errno));
	exit(1);
}

static unsigned receiving(const char *device)
{
	struct pcap_channels now;
	CHECK(pcap_get_channels(device, &now, errbuf) == 1);
	return now.rx_count;
}

static void refused(const char *device, unsigned count, int mask, int number, const char *why)
{
	struct pcap_channels wanted = { .rx_count = count, .combined_count = count };
	errno = 0;
	errbuf[0] = 0;
	CHECK(pcap_set_channels(device, &wanted, mask, errbuf) == PCAP_ERROR);
	CHECK(errno == number);
	CHECK(strstr(errbuf, why) != NULL);
}

int main(int argc, char **argv)
{
	const char *device = argc > 1 ? argv[1] : "";
	struct pcap_channels two = { .rx_count = 2, .tx_count = 77, .combined_count = 77 };
	cpu_set_t cpus;

	CHECK(receiving(device) == 4);
	CHECK(pcap_set_channels(device, &two, PCAP_RX_CHANNELS, errbuf) == 1);
	CHECK(receiving(device) == 2);
	refused(device, 5, PCAP_RX_CHANNELS, EINVAL, "5 rx channels, but it takes 4 at most");
	refused(device, 1, PCAP_COMBINED_CHANNELS, EINVAL, "1 combined channels, but it takes 0 at most");
	refused(device, 2, 0, EINVAL, "PCAP_RX_CHANNELS");
	refused(device, 2, 64, EINVAL, "PCAP_RX_CHANNELS");
	refused("lo", 2, PCAP_RX_CHANNELS, EOPNOTSUPP, "no channels");
	refused("nonesuch", 2, PCAP_RX_CHANNELS, ENODEV, "no device 'nonesuch'");
	CHECK(pcap_get_channels("lo", &two, errbuf) == PCAP_ERROR && errno == EOPNOTSUPP);
	CHECK(pcap_get_channels("nonesuch", &two, NULL) == PCAP_ERROR && errno == ENODEV);

	CPU_ZERO(&cpus);
	CHECK(pcap_channel_setaffinity(device, 0, &cpus) == PCAP_ERROR && errno == EINVAL);
	CPU_SET(0, &cpus);
	CHECK(pcap_channel_setaffinity(device, 0, &cpus) == PCAP_ERROR && errno == EOPNOTSUPP);
	CHECK(pcap_channel_setaffinity(device, -1, &cpus) == PCAP_ERROR && errno == EINVAL);
	CHECK(pcap_channel_getaffinity(device, 0, &cpus) == PCAP_ERROR && errno == EOPNOTSUPP);
	CHECK(pcap_channel_getaffinity("nonesuch", 0, &cpus) == PCAP_ERROR && errno == ENODEV);
	CHECK(receiving(device) == 2);
	puts("all checks passed");
	return 0;
}
