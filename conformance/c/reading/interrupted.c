/* Signals whose handlers don't break the loop do not end a reader's wait. */
#include <pthread.h>
#include <signal.h>
#include "../wire.h"

enum { SIGNALS = 5 };

static volatile sig_atomic_t handled;

static void on_signal(int signal)
{
	(void)signal;
	handled++;
}

static pthread_t reader;

static void *disturb(void *port)
{
	for (int i = 0; i < SIGNALS; i++) {
		sleep_ms(30);
		pthread_kill(reader, SIGUSR1);
		/* Waits until each signal is handled: a signal that comes before the previous one is handled is
		   merged with it. */
		for (int wait = 0; handled <= i && wait < 60000; wait++)
			sleep_ms(1);
	}
	sleep_ms(30);
	send_numbered(*(int *)port, 7, 1);
	return NULL;
}

int main(void)
{
	struct sigaction action = { .sa_handler = on_signal };
	int port = port_of(near);
	pthread_t thread;
	sigaction(SIGUSR1, &action, NULL);
	reader = pthread_self();
	for (int version = 2; version <= 3; version++) {
		pcap_t *p = opened(far, version);
		handled = 0;
		pthread_create(&thread, NULL, disturb, &port);
		printf("version %d:", version);
		int rc = pcap_dispatch(p, 1, print_number, NULL);
		printf(" -> %d, %d signals\n", rc, (int)handled);
		pthread_join(thread, NULL);
		pcap_close(p);
	}
	return 0;
}
