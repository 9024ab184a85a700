/* Leaves pcap_loop() and pcap_dispatch() by longjmp(), then continues to read. */
#include <setjmp.h>
#include "handle.h"

static jmp_buf out;

static void leave(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	++*(int *)user;
	(void)header;
	(void)bytes;
	longjmp(out, 1);
}

int main(int argc, char **argv)
{
	const char *source = argc > 1 ? argv[1] : "";
	volatile int round = 0;
	int seen = 0;
	pcap_t *p = open_source(source);
	if (!p)
		return 1;
	for (round = 0; round < 4; round++) {
		send_some(source, 4);
		if (setjmp(out) == 0) {
			for (int idle = 0; idle < 100; idle++)
				if ((round % 2 ? pcap_loop(p, 1, leave, (u_char *)&seen)
				               : pcap_dispatch(p, -1, leave, (u_char *)&seen)) < 0)
					break;
		}
	}
	send_some(source, 4);
	printf("left %d times, rest %d\n", seen, read_rest(p, 4) > 0);
	pcap_close(p);
	return seen == 4 ? 0 : 2;
}
