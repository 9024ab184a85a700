/* A device that goes down and comes up: reading continues without an error. */
#include <pthread.h>
#include "../wire.h"

struct sender {
	pcap_t *p;
	int port;
};

static void *down_and_up(void *argument)
{
	struct sender *sender = argument;
	sleep_ms(60);
	set_up(far, 0);
	sleep_ms(80);
	set_up(far, 1);
	/* Waits until the reader has noticed that the device was down. Otherwise the reader would find the
	   packet first. */
	for (int ms = 0; ms < 5000 && pcap_get_required_select_timeout(sender->p); ms++)
		sleep_ms(1);
	sleep_ms(20);
	send_until(sender->port, sender->p, 1);
	return NULL;
}

static void while_waiting(int version, int port)
{
	pthread_t thread;
	unsigned count = 0;
	pcap_t *p = opened(far, version);
	pthread_create(&thread, NULL, down_and_up, &(struct sender){ p, port });
	printf("version %d, waiting: %d", version, pcap_loop(p, 1, count_packet, (u_char *)&count));
	pthread_join(thread, NULL);
	printf(" %u, required timeout %s\n", count, yes(pcap_get_required_select_timeout(p) != NULL));
	pcap_close(p);
}

static void ask(pcap_t *p, const char *when)
{
	unsigned count = 0;
	int rc = pcap_dispatch(p, -1, count_packet, (u_char *)&count);
	const struct timeval *timeout = pcap_get_required_select_timeout(p);
	printf("  %s: %d [%s], required timeout %s", when, rc, rc < 0 ? pcap_geterr(p) : "", yes(timeout != NULL));
	if (timeout)
		printf(" %ld.%06ld", (long)timeout->tv_sec, (long)timeout->tv_usec);
	printf("\n");
}

static void without_waiting(int version, int port)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	pcap_t *p = opened(far, version);
	pcap_setnonblock(p, 1, errbuf);
	printf("version %d, not waiting\n", version);
	send_numbered(port, 0, 4);
	settle(p, 4);
	set_up(far, 0);
	sleep_ms(20);
	ask(p, "packets there");
	ask(p, "down");
	ask(p, "down");
	set_up(far, 1);
	sleep_ms(20);
	ask(p, "up");
	ask(p, "up");
	send_until(port, p, 5);
	settle(p, 5);
	ask(p, "packets again");
	pcap_close(p);
}

int main(void)
{
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		while_waiting(version, port);
		without_waiting(version, port);
	}
	return 0;
}
