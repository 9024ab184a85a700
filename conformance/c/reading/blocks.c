/* Without a timeout, packets wait until a block of the ring is full, and then arrive in order. */
#include "../wire.h"

static void check_order(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	unsigned *next = (unsigned *)user;
	if (number_of(bytes) != *next || header->caplen != 1000)
		printf("%u instead of %u, %u bytes\n", number_of(bytes), *next, header->caplen);
	++*next;
}

int main(void)
{
	unsigned next = 0;
	int port = port_of(near);
	pcap_t *p = created(far, 3);
	pcap_set_timeout(p, 0);
	activated(p);
	/* A block has 256 KiB. */
	send_sized(port, 0, 100, 1000);
	sleep_ms(SETTLED);
	printf("after 100: %s\n", yes(readable(p, 0)));
	send_sized(port, 100, 400, 1000);
	printf("after 500: %s\n", yes(readable(p, 5000)));
	int rc = pcap_dispatch(p, 10, check_order, (u_char *)&next);
	printf("10 at most: %d\n", rc);
	rc = pcap_dispatch(p, -1, check_order, (u_char *)&next);
	printf("the rest of the blocks: %s\n", yes(rc > 150 && next < 500));
	send_sized(port, 500, 400, 1000);
	printf("loop: %d\n", pcap_loop(p, 50, check_order, (u_char *)&next));
	pcap_close(p);
	return 0;
}
