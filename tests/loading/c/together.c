/* Several threads make the first call of the process at the same time. */
#include <pcap/pcap.h>
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 8 };

static pthread_barrier_t together;

static void *call(void *unused)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	pcap_t *p;

	(void)unused;
	pthread_barrier_wait(&together);
	p = pcap_create("lo", errbuf);
	if (p != NULL)
		pcap_close(p);
	return p;
}

int main(void)
{
	pthread_t threads[THREADS];
	void *p;
	int opened = 0;

	pthread_barrier_init(&together, NULL, THREADS);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, call, NULL);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &p);
		opened += p != NULL;
	}
	printf("%d opened\n", opened);
	return 0;
}
