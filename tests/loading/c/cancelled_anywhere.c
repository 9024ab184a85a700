/* Cancels threads that may be cancelled at any instruction, while they call pcap_stats(). Prints
   a message only if a thread was not cancelled. If the library aborts, the program ends by a
   signal. */
#include <pcap/pcap.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

enum { ROUNDS = 200, LIMIT_SECONDS = 60 };

static sem_t begun;

static void *stats(void *p)
{
	struct pcap_stat stat;
	sem_post(&begun);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	for (;;) {
		(void)pcap_stats(p, &stat);
		pthread_testcancel();
	}
	return NULL;
}

int main(void)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	pcap_t *p = pcap_create("lo", errbuf);
	if (!p || pcap_activate(p) < 0) {
		printf("no handle: %s\n", p ? pcap_geterr(p) : errbuf);
		return 1;
	}
	alarm(LIMIT_SECONDS);
	sem_init(&begun, 0, 0);
	for (int round = 0; round < ROUNDS; round++) {
		pthread_t thread;
		void *result = NULL;
		if (pthread_create(&thread, NULL, stats, p))
			return 3;
		sem_wait(&begun);
		usleep(100);
		pthread_cancel(thread);
		pthread_join(thread, &result);
		if (result != PTHREAD_CANCELED)
			puts("a thread was not cancelled");
	}
	pcap_close(p);
	return 0;
}
