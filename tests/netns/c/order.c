/* Reads the packets of fanpcap-gen on a device. Usage: order DEVICE waits|polls: the second word
   says whether the program waits for packets, or reads again and again without waiting. Ends after
   SIGINT when no packet is left, and prints how many packets it has read, and how many of them came
   after a later packet of the same sender. The second and third bytes of a packet's source address
   name its sender. */
#include "scene.h"
#include <signal.h>
#include <stdint.h>

enum { SOURCE_AT = 26, NUMBER_AT = 42, SHORTEST = 50, SENDERS = 1 << 16 };

static pcap_t *handle;
static unsigned long long packets, breaks;
/* For each sender, the number that the next packet must have at least. */
static uint64_t next_number[SENDERS];

static void look(u_char *unused, const struct pcap_pkthdr *header, const u_char *bytes)
{
	uint32_t number = 0;
	uint64_t *next = &next_number[bytes[SOURCE_AT + 1] << 8 | bytes[SOURCE_AT + 2]];

	(void)unused;
	if (header->caplen < SHORTEST)
		return;
	for (int i = 0; i < 4; i++)
		number = number << 8 | bytes[NUMBER_AT + i];
	packets++;
	if (number < *next)
		breaks++;
	else
		*next = (uint64_t)number + 1;
}

static volatile sig_atomic_t is_over;

static void on_interrupt(int signal)
{
	(void)signal;
	is_over = 1;
	pcap_breakloop(handle);
}

static int dispatch(void)
{
	int status = pcap_dispatch(handle, -1, look, NULL);

	if (status < 0 && status != PCAP_ERROR_BREAK)
		fail("pcap_dispatch", pcap_geterr(handle));
	return status;
}

int main(int argc, char **argv)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	const struct timespec pause = { .tv_nsec = 100000000 };
	struct pcap_stat stat;
	int empty = 0;

	if (argc != 3)
		fail("usage", "order DEVICE waits|polls");
	handle = opened(argv[1], 0, NULL);
	signal(SIGINT, on_interrupt);
	set_filter(handle, "udp dst port 9");
	puts("reading");
	fflush(stdout);
	if (strcmp(argv[2], "polls") == 0 && pcap_setnonblock(handle, 1, errbuf) != 0)
		fail("pcap_setnonblock", errbuf);
	while (!is_over)
		dispatch();
	if (pcap_setnonblock(handle, 1, errbuf) != 0)
		fail("pcap_setnonblock", errbuf);
	while (empty < 3) {
		if (dispatch() > 0)
			empty = 0;
		else if (++empty < 3)
			nanosleep(&pause, NULL);
	}
	if (pcap_stats(handle, &stat) != 0)
		fail("pcap_stats", pcap_geterr(handle));
	printf("%llu packets, %llu breaks, %u received, %u dropped\n", packets, breaks, stat.ps_recv,
	       stat.ps_drop);
	pcap_close(handle);
	return 0;
}
