/* A reader that stalls: delivered and dropped packets add up exactly to received packets. */
#include "../wire.h"

static void ordered(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	long *last = (long *)user;
	(void)header;
	if ((long)number_of(bytes) <= *last)
		printf("%u after %ld\n", number_of(bytes), *last);
	*last = (long)number_of(bytes);
}

int main(void)
{
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		struct pcap_stat stat;
		long last = -1;
		pcap_t *p = created(far, version);
		pcap_set_snaplen(p, 2000);
		pcap_set_buffer_size(p, 600000);
		activated(p);
		send_sized(port, 0, 3000, 1000);
		settle(p, 3000);
		int count = drain(p, ordered, &last);
		pcap_stats(p, &stat);
		printf("version %d: received %u, dropped some %s, delivered some %s\n", version, stat.ps_recv,
		       yes(stat.ps_drop > 0), yes(count > 0));
		printf("  received - dropped - delivered = %d\n", (int)(stat.ps_recv - stat.ps_drop) - count);
		/* Later packets must still arrive after the losses. */
		send_sized(port, 5000, 20, 1000);
		settle(p, 3020);
		count += drain(p, ordered, &last);
		pcap_stats(p, &stat);
		printf("  and later %d, last %ld\n", (int)(stat.ps_recv - stat.ps_drop) - count, last);
		pcap_close(p);
	}
	return 0;
}
