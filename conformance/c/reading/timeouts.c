/* How long a few packets wait with timeouts of 0, 10 ms, 1 s and -1, in blocks and in immediate mode. */
#include "../wire.h"

/* Sends packets to a new handle, and soon checks whether they can be read. On a very busy
   machine this check may come too late and prove nothing. In that case the function tries
   another handle. */
static pcap_t *looked_early(int port, int version, int timeout, int *rc, int *early)
{
	for (int tries = 1;; tries++) {
		pcap_t *p = created(far, version);
		*rc = pcap_set_timeout(p, timeout);
		double begin = now();
		activated(p);
		send_numbered(port, 0, 10);
		*early = readable(p, 200);
		if (now() - begin < 0.8 || tries == 5)
			return p;
		pcap_close(p);
	}
}

/* Prints whether packets can be read at once, and after the timeout. */
static void waits(int port, int version, int timeout)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	unsigned count = 0;
	int rc, early;
	pcap_t *p = looked_early(port, version, timeout, &rc, &early);
	printf("version %d, timeout %d: %d, nonblock %d\n", version, timeout, rc, pcap_getnonblock(p, errbuf));
	if (timeout != 10)
		printf("  at once: %s\n", yes(early));
	int late = readable(p, timeout == 0 && version == 3 ? 300 : 5000);
	printf("  in the end: %s\n", yes(late));
	if (late) {
		sleep_ms(SETTLED);
		printf("  dispatch: %d\n", pcap_dispatch(p, -1, count_packet, (u_char *)&count));
	}
	pcap_close(p);
}

int main(void)
{
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		waits(port, version, 0);
		waits(port, version, 10);
		waits(port, version, 1000);
		waits(port, version, -1);
	}
	return 0;
}
