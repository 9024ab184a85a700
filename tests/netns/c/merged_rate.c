/* Counts lost packets while packets come on f1 at a given rate. Usage: merged_rate DEVICES
   loop|select TIMEOUT_MS PER_SECOND COUNT. */
#define _GNU_SOURCE
#include "wires.h"
#include <sys/wait.h>

enum { LENGTH = 1500, BATCH = 32, PATIENCE_SECONDS = 2 };

static void send_paced(int port, double per_second, unsigned count)
{
	static unsigned char frame[LENGTH] = { 2, 0, 0, 0, 0, 0x0b, 2, 0, 0, 0, 0, 0x0a, 0x88, 0xb5 };
	struct iovec bytes = { frame, sizeof(frame) };
	struct mmsghdr batch[BATCH] = { 0 };
	double begin = now();
	unsigned sent = 0;

	for (int i = 0; i < BATCH; i++)
		batch[i].msg_hdr = (struct msghdr){ .msg_iov = &bytes, .msg_iovlen = 1 };
	while (sent < count) {
		int n = 0;

		if (sent < (now() - begin) * per_second)
			n = sendmmsg(port, batch, count - sent < BATCH ? count - sent : BATCH, 0);
		else
			usleep(200);
		sent += n > 0 ? (unsigned)n : 0;
	}
}

static void read_some(pcap_t *p, int selects, unsigned *count)
{
	struct pollfd fd = { .fd = pcap_get_selectable_fd(p), .events = POLLIN };

	if (selects && poll(&fd, 1, 100) <= 0)
		return;
	if (pcap_dispatch(p, -1, count_packet, (u_char *)count) < 0)
		fail("pcap_dispatch", pcap_geterr(p));
}

int main(int argc, char **argv)
{
	unsigned delivered = 0, count = argc == 6 ? (unsigned)atoi(argv[5]) : 0;
	struct pcap_stat stat = { 0 };
	double end;
	int port;
	pcap_t *p;

	if (count == 0)
		fail("usage", "merged_rate DEVICES loop|select TIMEOUT_MS PER_SECOND COUNT");
	port = port_of("n1");
	p = opened_how(argv[1], "plain", atoi(argv[3]));
	end = now() + count / atof(argv[4]) + PATIENCE_SECONDS;
	if (fork() == 0) {
		send_paced(port, atof(argv[4]), count);
		_exit(0);
	}
	while (delivered + stat.ps_drop < count && now() < end) {
		read_some(p, strcmp(argv[2], "select") == 0, &delivered);
		if (pcap_stats(p, &stat) != 0)
			fail("pcap_stats", pcap_geterr(p));
	}
	wait(NULL);
	printf("delivered %u dropped %u\n", delivered, stat.ps_drop);
	pcap_close(p);
	return 0;
}
