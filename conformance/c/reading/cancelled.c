/* A thread that is cancelled while it waits in pcap_loop() ends; another thread may continue to read. */
#include <pthread.h>
#include "../wire.h"

static volatile unsigned seen;

static void print_and_count(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	print_number(user, header, bytes);
	seen++;
}

static void *read_on(void *p)
{
	pcap_loop(p, -1, print_and_count, NULL);
	return NULL;
}

int main(void)
{
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		void *result = NULL;
		pthread_t thread;
		pcap_t *p = opened(far, version);
		printf("version %d:", version);
		seen = 0;
		pthread_create(&thread, NULL, read_on, p);
		send_numbered(port, 0, 3);
		for (int ms = 0; seen < 3 && ms < PATIENCE_SECONDS * 1000; ms++)
			sleep_ms(1);
		/* Give the other thread time to begin its wait. */
		sleep_ms(settled());
		pthread_cancel(thread);
		pthread_join(thread, &result);
		printf(" cancelled %s,", yes(result == PTHREAD_CANCELED));
		send_numbered(port, 10, 3);
		settle(p, 6);
		printf(" -> %d\n", pcap_dispatch(p, -1, print_number, NULL));
		pcap_close(p);
	}
	return 0;
}
