/* How long a few packets wait for the handle's timeout, of none, 10 ms, 1 s and -1, in blocks and immediately. */
#include "../wire.h"

/* Whether packets are there at once, and later than the timeout. */
static void waits(int port, int version, int timeout)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	unsigned count = 0;
	pcap_t *p = created(far, version);
	int rc = pcap_set_timeout(p, timeout);
	activated(p);
	printf("version %d, timeout %d: %d, nonblock %d\n", version, timeout, rc, pcap_getnonblock(p, errbuf));
	double begin = now();
	send_numbered(port, 0, 10);
	int early = readable(p, 200);
	/* A machine that is too busy to look in time has seen nothing. */
	if (timeout != 10 && now() - begin < 0.8)
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
