/* Tries modes in groups that run other modes. Usage: matrix DEVICE OWN|RAW MODE... Prints a line
   for each pair of modes: the first member's mode, the second member's mode, and the library's
   message or "joined". The first member is a handle of the library (OWN), or a socket without a
   page (RAW). */
#include <pcap/pcap.h>
#include <pcap/fanout.h>
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *device;

/* Joins with a handle. On a refusal, the handle has the reason. */
static pcap_t *joined(int group, const char *mode)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	pcap_t *p = pcap_create(device, errbuf);

	if (p == NULL || pcap_set_buffer_size(p, 4096) != 0) {
		fprintf(stderr, "pcap_create: %s\n", errbuf);
		exit(2);
	}
	/* Pauses, because the kernel frees a socket's detached filter only later. */
	usleep(20000);
	if (pcap_fanout(p, group, mode) == 0 && pcap_activate(p) >= 0)
		return p;
	printf("%s", pcap_geterr(p));
	pcap_close(p);
	return NULL;
}

/* PACKET_FANOUT's number of a mode with its options. A text that is no mode of the kernel is a
   steering program. */
static int numbers(const char *mode)
{
	static const struct { const char *name; int number; } modes[] = {
		{ "hash", 0 }, { "lb", 1 }, { "cpu", 2 }, { "rollover", 3 }, { "rnd", 4 }, { "qm", 5 },
	};
	size_t length = strcspn(mode, "+");
	int number = 7;

	for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
		if (strlen(modes[i].name) == length && memcmp(modes[i].name, mode, length) == 0)
			number = modes[i].number;
	return number | (strstr(mode, "+rollover") != NULL ? 0x1000 : 0) |
	       (strstr(mode, "+defrag") != NULL ? 0x8000 : 0);
}

/* Joins with a bare socket, a member that has no page. */
static void join_raw(int group, const char *mode)
{
	struct sockaddr_ll address = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_ALL),
		.sll_ifindex = (int)if_nametoindex(device),
	};
	int fd = socket(AF_PACKET, SOCK_RAW, 0);
	int fanout = group | numbers(mode) << 16;

	if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
	    setsockopt(fd, SOL_PACKET, PACKET_FANOUT, &fanout, sizeof fanout) != 0) {
		perror(mode);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	device = argv[1];
	for (int i = 3; i < argc; i++) {
		if (strcmp(argv[2], "RAW") == 0)
			join_raw(i, argv[i]);
		else if (joined(i, argv[i]) == NULL)
			return 2;
		for (int j = 3; j < argc; j++) {
			pcap_t *p;

			printf("%s\t%s\t", argv[i], argv[j]);
			if ((p = joined(i, argv[j])) != NULL) {
				printf("joined");
				pcap_close(p);
			}
			printf("\n");
		}
	}
	return 0;
}
