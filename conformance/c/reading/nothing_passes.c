/* If no arriving packet has the handle's direction, pcap_dispatch() returns 0, or continues to wait. */
#include <pthread.h>
#include "../wire.h"

static void *send_later(void *port)
{
	sleep_ms(100);
	/* Sends a packet that the handle's direction selects: it arrives at the device. */
	send_numbered(*(int *)port, 99, 1);
	return NULL;
}

static void read_none(int version, int timeout, int in, int out)
{
	pthread_t thread;
	struct pcap_pkthdr *header;
	const u_char *bytes;
	pcap_t *p = created(far, version);
	pcap_set_timeout(p, timeout);
	activated(p);
	pcap_setdirection(p, PCAP_D_IN);
	printf("version %d, timeout %d:", version, timeout);
	send_numbered(out, 0, 5);
	settle(p, 5);
	printf(" next_ex %d,", pcap_next_ex(p, &header, &bytes));
	send_numbered(out, 0, 5);
	settle(p, 10);
	printf(" dispatch %d,", pcap_dispatch(p, 3, print_number, NULL));
	send_numbered(out, 0, 5);
	settle(p, 15);
	pthread_create(&thread, NULL, send_later, &in);
	printf(" loop");
	printf(" -> %d\n", pcap_loop(p, 1, print_number, NULL));
	pthread_join(thread, NULL);
	pcap_close(p);
}

int main(void)
{
	int in = port_of(near), out = port_of(far);
	read_none(2, 10, in, out);
	read_none(2, 0, in, out);
	read_none(3, 10, in, out);
	return 0;
}
