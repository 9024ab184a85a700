/* A thread that is cancelled while it waits in pcap_loop() ends; another may go on reading. */
#include <pthread.h>
#include "../wire.h"

static void *read_on(void *p)
{
	pcap_loop(p, -1, print_number, NULL);
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
		pthread_create(&thread, NULL, read_on, p);
		send_numbered(port, 0, 3);
		settle(p, 3);
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
