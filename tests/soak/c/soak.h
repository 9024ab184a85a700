/* Shared by all roles of the soak: handles, the format of the frames, time, random numbers, and
   errors. */
#ifndef soak_h
#define soak_h

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <pcap/fanout.h>

enum {
	/* The ethertype of all frames, and another ethertype that no frame has. */
	OURS = 0x88b5,
	NOBODYS = 0x88b6,
	/* Offsets after the Ethernet header: of the frame's colour, and of the frame's number
	   within the colour (big-endian). */
	COLOR_AT = 14,
	NUMBER_AT = 15,
	MARKED_LEN = 23,
	COLORS = 4,
	TIMEOUT_MS = 20,
	/* The longest time of any step, even on a machine that stalls for seconds. */
	LIMIT_MS = 10000,
};

/* The arguments of the program. */
static const char *device;
static int group = -1;
static const char *mode;
static atomic_int stop;

static inline void fail(const char *what, const char *why)
{
	printf("FAIL: %s: %s\n", what, why);
	fflush(stdout);
	_exit(1);
}

static inline long now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static inline void sleep_us(long us)
{
	const struct timespec pause = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&pause, NULL);
}

/* A random number below `below`, by xorshift (Marsaglia, 2003). `seed` is the generator's state;
   each thread has its own. */
static inline unsigned drawn(unsigned *seed, unsigned below)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 17;
	*seed ^= *seed << 5;
	return *seed % below;
}

static inline int color_of(const struct pcap_pkthdr *header, const u_char *bytes)
{
	if (header->caplen < MARKED_LEN || (bytes[12] << 8 | bytes[13]) != OURS)
		fail("a packet", "is none of ours");
	return bytes[COLOR_AT];
}

static inline unsigned long long number_of(const u_char *bytes)
{
	unsigned long long number = 0;

	for (int i = 0; i < 8; i++)
		number = number << 8 | bytes[NUMBER_AT + i];
	return number;
}

static inline pcap_t *created(int buffer)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	pcap_t *p = pcap_create(device, errbuf);

	if (p == NULL)
		fail("pcap_create", errbuf);
	if (pcap_set_timeout(p, TIMEOUT_MS) != 0 || pcap_set_buffer_size(p, buffer) != 0)
		fail("pcap_set_timeout", pcap_geterr(p));
	return p;
}

/* Opens a handle in the group, or a plain handle if the program was given no group. */
static inline pcap_t *opened(int buffer)
{
	pcap_t *p = created(buffer);

	if (group >= 0 && pcap_fanout(p, group, mode) != 0)
		fail("pcap_fanout", pcap_geterr(p));
	if (pcap_activate(p) < 0)
		fail("pcap_activate", pcap_geterr(p));
	return p;
}

static inline void set_filter(pcap_t *p, const char *text)
{
	struct bpf_program program;

	/* The compiler has its own lock, so other threads may compile at the same time. */
	if (pcap_compile(p, &program, text, 1, PCAP_NETMASK_UNKNOWN) != 0)
		fail("pcap_compile", pcap_geterr(p));
	if (pcap_setfilter(p, &program) != 0)
		fail("pcap_setfilter", pcap_geterr(p));
	pcap_freecode(&program);
}

static inline struct pcap_stat stats(pcap_t *p)
{
	struct pcap_stat stat;

	if (pcap_stats(p, &stat) != 0)
		fail("pcap_stats", pcap_geterr(p));
	return stat;
}

/* Waits at most MILLISECONDS for packets and reads once. Returns whether more packets may be in
   the ring. */
static inline int read_some(pcap_t *p, int milliseconds, pcap_handler callback, void *user)
{
	struct pollfd ready = { .fd = pcap_get_selectable_fd(p), .events = POLLIN };
	int count;

	if (poll(&ready, 1, milliseconds) <= 0)
		return 0;
	count = pcap_dispatch(p, -1, callback, user);
	if (count == PCAP_ERROR)
		fail("pcap_dispatch", pcap_geterr(p));
	return count != 0;
}

/* Reads the remaining packets after the end of the traffic. Waits several timeouts, because the
   kernel delivers the last block only after the timeout. */
static inline void drain(pcap_t *p, pcap_handler callback, void *user)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";

	if (pcap_setnonblock(p, 1, errbuf) != 0)
		fail("pcap_setnonblock", errbuf);
	while (read_some(p, 10 * TIMEOUT_MS, callback, user))
		;
}

/* Checks the ledger when the ring is empty: the received packets must be the sum of the
   delivered and the dropped packets. Returns the number of dropped packets. */
static inline unsigned close_ledger(pcap_t *p, const char *name, unsigned long delivered)
{
	struct pcap_stat stat = stats(p);

	printf("ledger %s: received %u, delivered %u, dropped %u\n", name, stat.ps_recv, (unsigned)delivered,
	       stat.ps_drop);
	/* Compares modulo 2^32, because libpcap's counters have 32 bits. */
	if (stat.ps_recv != (unsigned)delivered + stat.ps_drop)
		fail(name, "the ledger does not add up");
	return stat.ps_drop;
}

#endif
