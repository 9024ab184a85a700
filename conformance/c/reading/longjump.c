/* A callback that leaves by longjmp(): which packets are delivered after that. */
#include <setjmp.h>
#include "../wire.h"

static jmp_buf out;
static volatile unsigned jumps;

static void leave(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	print_number(user, header, bytes);
	if (number_of(bytes) % 3 == 1 && jumps < 4) {
		jumps++;
		longjmp(out, 1);
	}
}

int main(void)
{
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		pcap_t *p = opened(far, version);
		send_numbered(port, 0, 12);
		settle(p, 12);
		jumps = 0;
		printf("version %d:", version);
		while (setjmp(out) != 0)
			printf(" left,");
		int rc = pcap_dispatch(p, -1, leave, NULL);
		printf(" -> %d\n", rc);
		printf("  rest:");
		printf(" -> %d\n", drain(p, print_number, NULL));
		pcap_close(p);
	}
	return 0;
}
