/* Shared by several programs: handles, the programs' own frames, and waiting for the frames'
   arrival. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <pcap/fanout.h>

static inline void fail(const char *call, const char *why)
{
	printf("%s: %s\n", call, why);
	exit(1);
}

static inline pcap_t *created(const char *device)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	pcap_t *p = pcap_create(device, errbuf);

	if (p == NULL)
		fail("pcap_create", errbuf);
	pcap_set_timeout(p, 50);
	return p;
}

/* Opens a handle in a group, or a plain handle if MODE is null. */
static inline pcap_t *opened(const char *device, int group, const char *mode)
{
	pcap_t *p = created(device);

	if (mode != NULL && pcap_fanout(p, group, mode) != 0)
		fail("pcap_fanout", pcap_geterr(p));
	if (pcap_activate(p) < 0)
		fail("pcap_activate", pcap_geterr(p));
	return p;
}

static inline void set_filter(pcap_t *p, const char *filter)
{
	struct bpf_program program;

	if (pcap_compile(p, &program, filter, 1, PCAP_NETMASK_UNKNOWN) != 0)
		fail("pcap_compile", pcap_geterr(p));
	if (pcap_setfilter(p, &program) != 0)
		fail("pcap_setfilter", pcap_geterr(p));
	pcap_freecode(&program);
}

/* The ethertypes for experiments (IEEE 802): no host answers them. */
enum { OURS = 0x88b5, OTHERS = 0x88b6 };

static inline void send_frames_of(const char *device, int type, int count)
{
	/* Broadcast. */
	unsigned char frame[60] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1 };
	pcap_t *p = opened(device, 0, NULL);

	frame[12] = (unsigned char)(type >> 8);
	frame[13] = (unsigned char)type;
	while (count-- > 0) {
		if (pcap_inject(p, frame, sizeof(frame)) != (int)sizeof(frame))
			fail("pcap_inject", pcap_geterr(p));
	}
	pcap_close(p);
}

static inline void send_frames(const char *device, int count)
{
	send_frames_of(device, OURS, count);
}

static inline unsigned received(pcap_t *p)
{
	struct pcap_stat stat;

	if (pcap_stats(p, &stat) != 0)
		fail("pcap_stats", pcap_geterr(p));
	return stat.ps_recv;
}

static inline struct pcap_fanout_stat fanout_stats(pcap_t *p)
{
	struct pcap_fanout_stat st = { .size = sizeof(st) };

	if (pcap_fanout_stats(p, &st) != 0)
		fail("pcap_fanout_stats", pcap_geterr(p));
	return st;
}

/* Waits until two handles (the second may be null) have received COUNT packets together. Gives up
   after a minute; then the caller prints the counters. */
static inline void await_received(pcap_t *p, pcap_t *other, unsigned count)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	time_t end = time(NULL) + 60;

	while (received(p) + (other != NULL ? received(other) : 0) < count && time(NULL) < end)
		nanosleep(&pause, NULL);
}
