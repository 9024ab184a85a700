/* Handles in pcap_loop() that another thread breaks at random moments. One handle gets packets.
   The other handle gets no packets, so its reader sleeps. Each break must end the loop. */
#ifndef breaks_h
#define breaks_h

#include "soak.h"

enum { LOOPS = 2, BREAKS_BUFFER = 1 << 20 };

struct looped {
	const char *name;
	pthread_t reader, breaker;
	pcap_t *p;
	atomic_ulong delivered, returns;
	atomic_ulong breaks, longest_us;
};

static struct looped loops[LOOPS] = { { .name = "busy" }, { .name = "asleep" } };

static inline void count_looped(u_char *delivered, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)color_of(header, bytes);
	atomic_fetch_add((atomic_ulong *)delivered, 1);
}

static inline void *loop_on(void *argument)
{
	struct looped *self = argument;

	while (!atomic_load(&stop)) {
		int status = pcap_loop(self->p, -1, count_looped, (u_char *)&self->delivered);

		if (status != PCAP_ERROR_BREAK)
			fail("pcap_loop", status == PCAP_ERROR ? pcap_geterr(self->p) : "ended by itself");
		atomic_fetch_add(&self->returns, 1);
	}
	return NULL;
}

static inline void break_once(struct looped *self)
{
	unsigned long before = atomic_load(&self->returns), us;
	long begin = now_us();

	pcap_breakloop(self->p);
	while (atomic_load(&self->returns) == before) {
		if (now_us() > begin + LIMIT_MS * 1000L)
			fail(self->name, "a break was lost");
		sleep_us(20);
	}
	us = (unsigned long)(now_us() - begin);
	if (us > atomic_load(&self->longest_us))
		atomic_store(&self->longest_us, us);
	atomic_fetch_add(&self->breaks, 1);
}

static inline void *break_on(void *argument)
{
	unsigned seed = (unsigned)now_us() | 1;
	struct looped *self = argument;

	while (!atomic_load(&stop)) {
		/* In half of the cases breaks without a pause, so that the break comes just when
		   the reader is about to wait. */
		sleep_us(drawn(&seed, 2) == 0 ? 0 : drawn(&seed, 10000));
		break_once(self);
	}
	return NULL;
}

static inline void start_breaks(void)
{
	char text[32];

	snprintf(text, sizeof(text), "ether proto %d", NOBODYS);
	for (int i = 0; i < LOOPS; i++)
		loops[i].p = opened(BREAKS_BUFFER);
	set_filter(loops[1].p, text);
	/* The loops begin after the filter is set. Packets that came before the filter are still
	   delivered and counted. */
	for (int i = 0; i < LOOPS; i++) {
		pthread_create(&loops[i].reader, NULL, loop_on, &loops[i]);
		pthread_create(&loops[i].breaker, NULL, break_on, &loops[i]);
	}
}

static inline void tell_breaks(void)
{
	printf("progress %lu and %lu breaks, the longest %lu and %lu us\n", atomic_load(&loops[0].breaks),
	       atomic_load(&loops[1].breaks), atomic_load(&loops[0].longest_us), atomic_load(&loops[1].longest_us));
}

static inline void end_breaks(void)
{
	for (int i = 0; i < LOOPS; i++) {
		struct looped *self = &loops[i];

		pthread_join(self->breaker, NULL);
		/* Breaks again, because the reader may have begun to wait after the last break. */
		pcap_breakloop(self->p);
		pthread_join(self->reader, NULL);
		drain(self->p, count_looped, (u_char *)&self->delivered);
		if (i == 0)
			close_ledger(self->p, self->name, atomic_load(&self->delivered));
		pcap_close(self->p);
	}
}

#endif
