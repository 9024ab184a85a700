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

/* Defined in every release of the extension, so that applications can test for it by #ifdef. */
#define PCAP_VERSION_FANOUT 1

/* A value for `group`: the kernel or the poller picks an unused number, which
   pcap_fanout_group() returns. */
#define PCAP_FANOUT_NEW (-1)

/* Bits of the member `valid`: the fields of struct pcap_fanout_stat that hold a number. */
#define PCAP_FANOUT_STAT_RECEIVED       0x01
#define PCAP_FANOUT_STAT_DROPPED        0x02
#define PCAP_FANOUT_STAT_MEMBERS        0x04
#define PCAP_FANOUT_STAT_GROUP_RECEIVED 0x08
#define PCAP_FANOUT_STAT_GROUP_DROPPED  0x10
#define PCAP_FANOUT_STAT_COUNTERS       0x20
#define PCAP_FANOUT_STAT_GROUP_COUNTERS 0x40
#define PCAP_FANOUT_STAT_LATE           0x80
#define PCAP_FANOUT_STAT_STEERED_NOWHERE 0x100

/* Counters of a steering program (`inc N`, `dec N`), 0..63. */
#define PCAP_FANOUT_COUNTERS 64

struct pcap_fanout_stat {
	size_t   size;            /* in: sizeof(struct pcap_fanout_stat) */
	uint32_t valid;           /* out: one bit for each known field, PCAP_FANOUT_STAT_* */
	int32_t  group;           /* the group joined, 0..65535 */
	uint64_t received;        /* packets since this member joined, dropped packets included */
	uint64_t dropped;         /* of `received`: lost because this member's ring was full */
	uint64_t members;         /* sockets now in the group, of this process and of others */
	uint64_t group_received;  /* sum of `received` over the members */
	uint64_t group_dropped;   /* sum of `dropped` over the members */
	uint64_t group_age_ns;    /* age of the oldest counter in these sums, in nanoseconds */
	/* For groups with a steering program. Applications built before these fields existed pass
	   a smaller `size`. The steering program's counters are in two's complement. */
	uint64_t counters[PCAP_FANOUT_COUNTERS];        /* of this member */
	uint64_t group_counters[PCAP_FANOUT_COUNTERS];  /* sums over the members */
	uint64_t late;            /* fragments that came before the first one of their datagram */
	uint64_t steered_nowhere; /* packets of the group that the steering program dropped */
};

/* Joins `group` with `fanout`: a mode, a steering program, or "file:PATH" of a steering program.
   With NULL, the environment or the config file gives the mode. If neither does, the member gets
   the group's own mode; a first member gets "flow", or "hash" where "flow" can't be loaded. Before
   pcap_activate(), the call is only recorded, and pcap_activate() joins the group. On a member of a
   steered group, a steering program replaces the group's steering program. Returns 0, or PCAP_ERROR
   with the reason in pcap_geterr(). If pcap_activate() could not join the group, both functions may
   be called again.
   The handle's descriptor is closed by exec (FD_CLOEXEC), because otherwise the processes that the
   application executes would keep the member in the group. */
int pcap_fanout(pcap_t *p, int group, const char *fanout);

/* The group that the handle has joined; PCAP_ERROR_NOT_ACTIVATED before activation; PCAP_ERROR if
   the handle has joined no group. */
int pcap_fanout_group(pcap_t *p);

/* Counters of the member and of its group. Returns 0, or PCAP_ERROR with the reason in
   pcap_geterr(). */
int pcap_fanout_stats(pcap_t *p, struct pcap_fanout_stat *st);

/* Lists the modes that this handle's device can use, as pcap_list_datalinks() lists link types.
   Returns the number of names, or PCAP_ERROR. pcap_free_fanout_modes() frees the list. */
int pcap_list_fanout_modes(pcap_t *p, char ***modes);
void pcap_free_fanout_modes(char **modes);

/* The channels of a NIC: its queues, each with an interrupt (ethtool(8), -l). */
struct pcap_channels {
	unsigned int rx_count;        /* receive only */
	unsigned int tx_count;        /* send only */
	unsigned int other_count;     /* other purposes, such as link changes */
	unsigned int combined_count;  /* receive and send */
};

/* Bits for `channel_mask`: which numbers of channels to change. */
#define PCAP_RX_CHANNELS       1
#define PCAP_TX_CHANNELS       2
#define PCAP_COMBINED_CHANNELS 4
#define PCAP_OTHER_CHANNELS    8

/* Read and change the numbers of channels of the device `dev`. The device may lose its link for a
   moment. Return 1, or PCAP_ERROR with the reason in errbuf and errno. `fanpcap tune --restore`
   restores the previous numbers. */
int pcap_set_channels(const char *dev, const struct pcap_channels *ch, int channel_mask,
		      char *errbuf);
int pcap_get_channels(const char *dev, struct pcap_channels *info, char *errbuf);

/* Change and read the CPUs that serve the interrupts of one channel; channels count from 0. Return
   1, or PCAP_ERROR with errno. */
int pcap_channel_setaffinity(const char *dev, int channel, const cpu_set_t *cpuset);
int pcap_channel_getaffinity(const char *dev, int channel, cpu_set_t *cpuset);

#ifdef __cplusplus
}
#endif

#endif
