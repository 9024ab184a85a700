/* Two handles whose counters other threads read all the time. One handle is read without pause.
   The other handle is read so slowly that it loses packets. */
#ifndef resident_h
#define resident_h

#include "soak.h"

enum { RESIDENTS = 2, RESIDENT_BUFFER = 2 << 20, SLOW_BUFFER = 1 << 19, SLOW_US = 200000 };

struct resident {
	pthread_t reader, asker;
	pcap_t *p;
	atomic_ulong delivered;
};

static struct resident residents[RESIDENTS];
static atomic_ulong asked;
static int is_slow;

static inline void count_packet(u_char *delivered, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)color_of(header, bytes);
	atomic_fetch_add((atomic_ulong *)delivered, 1);
}

static inline void *read_on(void *argument)
{
	struct resident *self = argument;
	unsigned seed = (unsigned)now_us() | 1;

	while (!atomic_load(&stop)) {
		if (is_slow)
			sleep_us(drawn(&seed, SLOW_US));
		if (pcap_dispatch(self->p, -1, count_packet, (u_char *)&self->delivered) == PCAP_ERROR)
			fail("pcap_dispatch", pcap_geterr(self->p));
	}
	return NULL;
}

/* Checks that no total decreases, and that no more packets are delivered than were received. */
static inline void *ask_on(void *argument)
{
	struct pcap_fanout_stat st = { .size = sizeof(st) };
	struct resident *self = argument;
	struct pcap_stat last = stats(self->p);
	unsigned seed = (unsigned)now_us() | 1;

	while (!atomic_load(&stop)) {
		unsigned delivered = (unsigned)atomic_load(&self->delivered);
		struct pcap_stat now = stats(self->p);

		if ((int)(now.ps_recv - last.ps_recv) < 0 || (int)(now.ps_drop - last.ps_drop) < 0)
			fail("pcap_stats", "a total went back");
		if ((int)(now.ps_recv - now.ps_drop - delivered) < 0)
			fail("pcap_stats", "more delivered than received");
		if (group >= 0 && pcap_fanout_stats(self->p, &st) != 0)
			fail("pcap_fanout_stats", pcap_geterr(self->p));
		if (group >= 0 && st.valid & PCAP_FANOUT_STAT_MEMBERS && st.members < RESIDENTS)
			fail("pcap_fanout_stats", "members are missing");
		last = now;
		atomic_fetch_add(&asked, 1);
		sleep_us(1000 + drawn(&seed, 50000));
	}
	return NULL;
}

static inline void start_resident(void)
{
	for (int i = 0; i < RESIDENTS; i++)
		residents[i].p = opened(is_slow ? SLOW_BUFFER : RESIDENT_BUFFER);
	for (int i = 0; i < RESIDENTS; i++) {
		pthread_create(&residents[i].reader, NULL, read_on, &residents[i]);
		pthread_create(&residents[i].asker, NULL, ask_on, &residents[i]);
	}
}

static inline void start_slow(void)
{
	is_slow = 1;
	start_resident();
}

static inline void tell_resident(void)
{
	printf("progress delivered %lu and %lu, asked %lu times\n", atomic_load(&residents[0].delivered),
	       atomic_load(&residents[1].delivered), atomic_load(&asked));
}

static inline void end_threads(struct resident *self)
{
	pcap_breakloop(self->p);
	pthread_join(self->reader, NULL);
	pthread_join(self->asker, NULL);
}

/* Ends a visitor without a check of its ledger. Frames are still sent while it leaves, so its
   final counters can't be compared. */
static inline void end_visitor(void)
{
	for (int i = 0; i < RESIDENTS; i++) {
		end_threads(&residents[i]);
		pcap_close(residents[i].p);
	}
}

static inline void end_resident(void)
{
	for (int i = 0; i < RESIDENTS; i++) {
		struct resident *self = &residents[i];
		unsigned dropped;

		end_threads(self);
		drain(self->p, count_packet, (u_char *)&self->delivered);
		dropped = close_ledger(self->p, i == 0 ? "first" : "second", atomic_load(&self->delivered));
		/* The slow handle must have lost packets. Otherwise the test of dropped packets
		   would prove nothing. */
		if (is_slow && dropped == 0)
			fail("a slow reader", "lost nothing");
		pcap_close(self->p);
	}
}

#endif
