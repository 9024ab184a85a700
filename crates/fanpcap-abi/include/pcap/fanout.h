/* The fan-out extension of the pcap API. Include it after <pcap/pcap.h>; see pcap_fanout(3PCAP). */
#ifndef fanpcap_pcap_fanout_h
#define fanpcap_pcap_fanout_h

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <pcap/pcap.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Present in every release of the extension; programs test for it as they do for PCAP_ERROR_*. */
#define PCAP_VERSION_FANOUT 1

/* As `group`: the kernel picks a group number that nobody uses; pcap_fanout_group() tells which. */
#define PCAP_FANOUT_NEW (-1)

/* Which fields of struct pcap_fanout_stat hold a number (member `valid`). */
#define PCAP_FANOUT_STAT_RECEIVED       0x01
#define PCAP_FANOUT_STAT_DROPPED        0x02
#define PCAP_FANOUT_STAT_MEMBERS        0x04
#define PCAP_FANOUT_STAT_GROUP_RECEIVED 0x08
#define PCAP_FANOUT_STAT_GROUP_DROPPED  0x10
#define PCAP_FANOUT_STAT_COUNTERS       0x20
#define PCAP_FANOUT_STAT_GROUP_COUNTERS 0x40
#define PCAP_FANOUT_STAT_LATE           0x80

/* Counters of a steering program (`inc N`, `dec N`), 0..63. */
#define PCAP_FANOUT_COUNTERS 64

struct pcap_fanout_stat {
	size_t   size;            /* in: sizeof(struct pcap_fanout_stat) */
	uint32_t valid;           /* out: a bit per field that is known, PCAP_FANOUT_STAT_* */
	int32_t  group;           /* the group joined, 0..65535 */
	uint64_t received;        /* packets for this member since it joined, dropped ones included */
	uint64_t dropped;         /* of these, lost because this member's ring was full */
	uint64_t members;         /* sockets in the group now, of all processes, this one included */
	uint64_t group_received;  /* sum of `received` over the members */
	uint64_t group_dropped;   /* sum of `dropped` over the members */
	uint64_t group_age_ns;    /* age of the oldest of the counters in these sums, nanoseconds */
	/* Of groups with a steering program. Who was built before there were these passes a
	   smaller `size`. The program's counters are in two's complement. */
	uint64_t counters[PCAP_FANOUT_COUNTERS];        /* of this member */
	uint64_t group_counters[PCAP_FANOUT_COUNTERS];  /* sums over the members */
	uint64_t late;            /* fragments that came before the first one of their datagram */
};

/* Joins `group` under `fanout`: a mode, a steering program, or "file:PATH" of one (NULL: what
   environment or config file give the group, else the group's own mode, and for its first member
   "flow", or "hash" where that can't be loaded). Before pcap_activate() it is remembered and done
   there. On a member of a group with a program another program takes its place, for the whole
   group. 0, or PCAP_ERROR with the reason in pcap_geterr(); when pcap_activate() could not join,
   both may be called again. The handle's descriptor is closed in programs that the process starts,
   or it would keep its place there. */
int pcap_fanout(pcap_t *p, int group, const char *fanout);

/* The group that the handle has joined; PCAP_ERROR_NOT_ACTIVATED before activation; PCAP_ERROR:
   none. */
int pcap_fanout_group(pcap_t *p);

/* Counters of the member and of its group. 0, or PCAP_ERROR with the reason in pcap_geterr(). */
int pcap_fanout_stats(pcap_t *p, struct pcap_fanout_stat *st);

/* The modes that this handle's device can use, as pcap_list_datalinks() lists link types: the
   number of names, or PCAP_ERROR; the list is freed with pcap_free_fanout_modes(). */
int pcap_list_fanout_modes(pcap_t *p, char ***modes);
void pcap_free_fanout_modes(char **modes);

/* The channels of a NIC: its queues, each with an interrupt (ethtool(8), -l). */
struct pcap_channels {
	unsigned int rx_count;        /* receive only */
	unsigned int tx_count;        /* send only */
	unsigned int other_count;     /* other purposes, such as link changes */
	unsigned int combined_count;  /* receive and send */
};

/* As `channel_mask`: which of the numbers to change. */
#define PCAP_RX_CHANNELS       1
#define PCAP_TX_CHANNELS       2
#define PCAP_COMBINED_CHANNELS 4
#define PCAP_OTHER_CHANNELS    8

/* Read and change the numbers of channels of the device `dev`. The device may lose its link for a
   moment. 1, or PCAP_ERROR with the reason in errbuf and errno. What was before comes back by
   `fanpcap tune --restore`. */
int pcap_set_channels(const char *dev, const struct pcap_channels *ch, int channel_mask,
		      char *errbuf);
int pcap_get_channels(const char *dev, struct pcap_channels *info, char *errbuf);

/* Change and read the CPUs that serve the interrupts of one channel, from 0. 1, or PCAP_ERROR with
   errno. */
int pcap_channel_setaffinity(const char *dev, int channel, const cpu_set_t *cpuset);
int pcap_channel_getaffinity(const char *dev, int channel, cpu_set_t *cpuset);

#ifdef __cplusplus
}
#endif

#endif
