/* Four threads, each with its own handle, in one group. Usage: threads DEVICE PACKETS. Two handles
   join before activation, two after. Ends when they have read PACKETS packets together, or after 20
   seconds. */

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <pcap/fanout.h>

enum { THREADS = 4, GROUP = 7, LIMIT_SECONDS = 60 };

struct thread {
	pthread_t id;
	int number;
	unsigned long packets;
	struct pcap_fanout_stat stat;
};

static const char *device;
static unsigned long expected;
static atomic_ulong total;
static pthread_barrier_t joined, counted;

static void count(u_char *self, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)header;
	(void)bytes;
	((struct thread *)self)->packets++;
	atomic_fetch_add(&total, 1);
}

static void fail(int number, const char *call, const char *why)
{
	printf("thread %d: %s: %s\n", number, call, why);
	exit(1);
}

static pcap_t *join(int number)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	pcap_t *p = pcap_create(device, errbuf);

	if (p == NULL)
		fail(number, "pcap_create", errbuf);
	pcap_set_timeout(p, 50);
	if (number % 2 == 0 && pcap_fanout(p, GROUP, "hash") != 0)
		fail(number, "pcap_fanout before activation", pcap_geterr(p));
	if (pcap_activate(p) != 0)
		fail(number, "pcap_activate", pcap_geterr(p));
	if (number % 2 == 1 && pcap_fanout(p, GROUP, "hash") != 0)
		fail(number, "pcap_fanout after activation", pcap_geterr(p));
	if (pcap_fanout_group(p) != GROUP)
		fail(number, "pcap_fanout_group", "another group");
	if (pcap_setnonblock(p, 1, errbuf) != 0)
		fail(number, "pcap_setnonblock", errbuf);
	return p;
}

static void *capture(void *argument)
{
	struct thread *self = argument;
	time_t end = time(NULL) + LIMIT_SECONDS;
	pcap_t *p = join(self->number);
	struct pollfd ring = { .fd = pcap_get_selectable_fd(p), .events = POLLIN };

	if (pthread_barrier_wait(&joined) == PTHREAD_BARRIER_SERIAL_THREAD)
		puts("ready");
	/* Polls with a timeout instead of waiting in pcap_dispatch(): after the last packet, no
	   packet would end the wait. */
	while (atomic_load(&total) < expected && time(NULL) < end) {
		poll(&ring, 1, 50);
		if (pcap_dispatch(p, -1, count, (u_char *)self) < 0)
			fail(self->number, "pcap_dispatch", pcap_geterr(p));
	}
	/* Each thread reads its own counters before any thread asks for the sums. */
	self->stat.size = sizeof(self->stat);
	for (int round = 0; round < 2; round++) {
		if (pcap_fanout_stats(p, &self->stat) != 0)
			fail(self->number, "pcap_fanout_stats", pcap_geterr(p));
		pthread_barrier_wait(&counted);
	}
	pcap_close(p);
	return NULL;
}

int main(int argc, char **argv)
{
	struct thread threads[THREADS] = { 0 };

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc != 3) {
		puts("usage: threads DEVICE PACKETS");
		return 2;
	}
	device = argv[1];
	expected = strtoul(argv[2], NULL, 10);
	pthread_barrier_init(&joined, NULL, THREADS);
	pthread_barrier_init(&counted, NULL, THREADS);
	for (int i = 0; i < THREADS; i++) {
		threads[i].number = i;
		pthread_create(&threads[i].id, NULL, capture, &threads[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i].id, NULL);
	for (int i = 0; i < THREADS; i++) {
		const struct pcap_fanout_stat *st = &threads[i].stat;

		printf("thread packets=%lu valid=%#x group=%d received=%llu dropped=%llu members=%llu "
		       "group_received=%llu group_dropped=%llu\n",
		       threads[i].packets, st->valid, st->group, (unsigned long long)st->received,
		       (unsigned long long)st->dropped, (unsigned long long)st->members,
		       (unsigned long long)st->group_received, (unsigned long long)st->group_dropped);
	}
	return 0;
}
