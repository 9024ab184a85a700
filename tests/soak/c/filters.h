/* One handle that continuously changes its filter. The handle must get no packet that only an
   earlier filter passes, and must miss no packet that the current filter passes. */
#ifndef filters_h
#define filters_h

#include "soak.h"

enum { FILTERS_BUFFER = 4 << 20 };

struct filtered {
	int color;
	unsigned long packets;
	/* The number of the last packet of this colour. The next packet must have the next number. */
	unsigned long long last;
	unsigned long missing;
};

static pthread_t filterer;
static atomic_ulong filters, filtered_packets, drops_seen;

static inline void check_packet(u_char *argument, const struct pcap_pkthdr *header, const u_char *bytes)
{
	struct filtered *self = (struct filtered *)argument;
	unsigned long long number = number_of(bytes);

	if (color_of(header, bytes) != self->color)
		fail("a packet", "passed only by an earlier filter");
	if (self->packets > 0 && number <= self->last)
		fail("a packet", "delivered again or out of order");
	if (self->packets > 0)
		self->missing += number - self->last - 1;
	self->last = number;
	self->packets++;
}

static inline void filter_for_a_while(pcap_t *p, int color, long us)
{
	struct filtered self = { .color = color };
	unsigned dropped = stats(p).ps_drop;
	long begin = now_us();
	char text[64];

	snprintf(text, sizeof(text), "ether proto %d and ether[%d] == %d", OURS, COLOR_AT, color);
	set_filter(p, text);
	while (now_us() < begin + us || self.packets == 0) {
		read_some(p, TIMEOUT_MS, check_packet, &self);
		if (self.packets == 0 && now_us() > begin + LIMIT_MS * 1000L)
			fail("a filter", "passes nothing");
		if (atomic_load(&stop))
			break;
	}
	dropped = stats(p).ps_drop - dropped;
	atomic_fetch_add(&drops_seen, dropped);
	if (self.missing > 0 && dropped == 0)
		fail("a filter", "lost packets that it passes");
	atomic_fetch_add(&filters, 1);
	atomic_fetch_add(&filtered_packets, self.packets);
}

static inline void *filter_on(void *p)
{
	unsigned seed = (unsigned)now_us() | 1;

	for (int color = 0; !atomic_load(&stop); color = (color + 1 + (int)drawn(&seed, COLORS - 1)) % COLORS)
		filter_for_a_while(p, color, drawn(&seed, 60000));
	pcap_close(p);
	return NULL;
}

static inline void start_filters(void)
{
	pthread_create(&filterer, NULL, filter_on, opened(FILTERS_BUFFER));
}

static inline void tell_filters(void)
{
	printf("progress %lu filters, %lu packets, %lu dropped\n", atomic_load(&filters),
	       atomic_load(&filtered_packets), atomic_load(&drops_seen));
}

static inline void end_filters(void)
{
	pthread_join(filterer, NULL);
}

#endif
