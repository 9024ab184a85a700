/* Signal handlers interrupt malloc() on threads that have never called libpcap before. Usage:
   interrupts DEVICE breakloop|stats GROUP|- [beside]. The handler calls pcap_breakloop() or
   pcap_stats() on a plain handle. Another handle is in GROUP. If GROUP is -, the other handle is
   in no group; only its buffer size is set. With the argument `beside`, another thread calls
   pcap_fanout_group() on the other handle again and again at the same time. */
#define _GNU_SOURCE
#include "scene.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

enum { ROUNDS = 60, LIMIT_SECONDS = 60, BLOCKS = 64 };

static pcap_t *plain, *other;
static int asks_stats;
static atomic_int interrupted, stopped;

static void interrupt(int signal)
{
	struct pcap_stat stat;

	(void)signal;
	if (asks_stats)
		(void)pcap_stats(plain, &stat);
	else
		pcap_breakloop(plain);
	atomic_store(&interrupted, 1);
}

static void *allocate(void *seed)
{
	unsigned random = (unsigned)(size_t)seed;
	void *blocks[BLOCKS] = { NULL };

	while (!atomic_load(&interrupted)) {
		random = random * 1103515245 + 12345;
		void **block = &blocks[(random >> 8) % BLOCKS];
		free(*block);
		*block = malloc(1500 + (random >> 16) % 60000);
	}
	for (int i = 0; i < BLOCKS; i++)
		free(blocks[i]);
	return NULL;
}

static void *look_up(void *unused)
{
	sigset_t all;

	/* This thread blocks the signals, so that the other threads get them. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	while (!atomic_load(&stopped))
		(void)pcap_fanout_group(other);
	return unused;
}

static void open_handles(const char *device, const char *group)
{
	if (strcmp(group, "-") == 0) {
		other = created(device);
		pcap_set_buffer_size(other, 1 << 20);
		if (pcap_activate(other) < 0)
			fail("pcap_activate", pcap_geterr(other));
	} else {
		other = opened(device, atoi(group), "hash");
	}
	plain = opened(device, 0, NULL);
}

static void interrupt_once(int round)
{
	const struct timespec pause = { .tv_nsec = 300000 + round * 7919 % 500000 };
	struct timespec limit;
	pthread_t thread;

	atomic_store(&interrupted, 0);
	pthread_create(&thread, NULL, allocate, (void *)(size_t)(round * 7919 + 1));
	nanosleep(&pause, NULL);
	pthread_kill(thread, SIGUSR1);
	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += LIMIT_SECONDS;
	if (pthread_timedjoin_np(thread, NULL, &limit) != 0) {
		/* Must not allocate memory: while the handler hangs, malloc() stays locked. */
		_exit(write(STDOUT_FILENO, "the handler hangs\n", 18) == 18 ? 1 : 2);
	}
}

int main(int argc, char **argv)
{
	pthread_t beside;

	if (argc < 4)
		fail("usage", "interrupts DEVICE breakloop|stats GROUP|- [beside]");
	asks_stats = strcmp(argv[2], "stats") == 0;
	open_handles(argv[1], argv[3]);
	signal(SIGUSR1, interrupt);
	if (argc > 4)
		pthread_create(&beside, NULL, look_up, NULL);
	for (int round = 0; round < ROUNDS; round++)
		interrupt_once(round);
	atomic_store(&stopped, 1);
	if (argc > 4)
		pthread_join(beside, NULL);
	pcap_close(plain);
	pcap_close(other);
	puts("done");
	return 0;
}
