/* Three threads read one member's counters while packets arrive. Usage: totals DEVICE GROUP. Prints
   the total when it is interrupted. */
#include "scene.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

enum { THREADS = 3 };

static pcap_t *p;
static atomic_int stop;

static void *ask(void *unused)
{
	(void)unused;
	while (!atomic_load(&stop))
		(void)received(p);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	sigset_t interrupt;
	int signal;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc != 3)
		fail("usage", "totals DEVICE GROUP");
	sigemptyset(&interrupt);
	sigaddset(&interrupt, SIGINT);
	sigprocmask(SIG_BLOCK, &interrupt, NULL);
	p = opened(argv[1], atoi(argv[2]), "hash");
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, ask, NULL);
	puts("ready");
	sigwait(&interrupt, &signal);
	atomic_store(&stop, 1);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("received %llu\n", (unsigned long long)fanout_stats(p).received);
	pcap_close(p);
	return 0;
}
