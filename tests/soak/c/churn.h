/* Threads that continuously open and close handles, each time in a random way. Plain handles are
   opened by one thread: each takes the device, which holds up all other handles on the XDP
   engine. */
#ifndef churn_h
#define churn_h

#include "soak.h"

enum { CHURNERS = 3, CHURN_BUFFER = 1 << 18, READS_MAX = 4 };

static pthread_t churners[CHURNERS];
static atomic_ulong opened_ever, read_ever;

static inline void count_churned(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	(void)color_of(header, bytes);
	atomic_fetch_add(&read_ever, 1);
}

/* Opens a handle with its group set before activation, by a call after activation, by
   pcap_open_live(), or without a group. */
static inline pcap_t *open_somehow(unsigned *seed)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	unsigned way = drawn(seed, 4);
	pcap_t *p;

	if (way == 0 || group < 0)
		return opened(CHURN_BUFFER);
	if (way == 1) {
		p = pcap_open_live(device, 128, 0, TIMEOUT_MS, errbuf);
		if (p == NULL)
			fail("pcap_open_live", errbuf);
	} else {
		p = created(CHURN_BUFFER);
		if (pcap_activate(p) < 0)
			fail("pcap_activate", pcap_geterr(p));
	}
	if (way == 2 && pcap_fanout(p, group, mode) != 0)
		fail("pcap_fanout after activation", pcap_geterr(p));
	return p;
}

static inline void *churn_on(void *argument)
{
	unsigned seed = ((unsigned)now_us() ^ (unsigned)(size_t)argument) | 1;

	while (!atomic_load(&stop)) {
		pcap_t *p = open_somehow(&seed);

		if (drawn(&seed, 3) == 0)
			set_filter(p, "ether[14] == 0 or ether[14] == 1");
		for (unsigned reads = drawn(&seed, READS_MAX); reads > 0; reads--)
			read_some(p, TIMEOUT_MS, count_churned, NULL);
		(void)stats(p);
		pcap_close(p);
		atomic_fetch_add(&opened_ever, 1);
	}
	return NULL;
}

static inline int churner_count(void)
{
	return group < 0 ? 1 : CHURNERS;
}

static inline void start_churn(void)
{
	for (int i = 0; i < churner_count(); i++)
		pthread_create(&churners[i], NULL, churn_on, (void *)((size_t)i << 8));
}

static inline void tell_churn(void)
{
	printf("progress %lu handles, %lu packets\n", atomic_load(&opened_ever), atomic_load(&read_ever));
}

static inline void end_churn(void)
{
	for (int i = 0; i < churner_count(); i++)
		pthread_join(churners[i], NULL);
}

#endif
