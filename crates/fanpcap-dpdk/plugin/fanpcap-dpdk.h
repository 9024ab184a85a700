/* What the plugin fanpcap-dpdk.so offers to `fanpcap poller`. src/abi.rs declares it in Rust. */
#ifndef FANPCAP_DPDK_H
#define FANPCAP_DPDK_H

#include <stddef.h>
#include <stdint.h>

/* Each change of this file gets another version. The poller loads a plugin of its version only. */
#define FANPCAP_DPDK_VERSION 1

/* The most packets that a queue lends at once. */
#define FANPCAP_DPDK_BURST 64

/* A packet that is lent until the queue's next burst or release. */
struct fanpcap_dpdk_packet {
	const uint8_t *bytes;
	uint64_t stamp;    /* in ticks of the device's clock, if HAS_STAMP is set */
	uint32_t len;      /* readable bytes */
	uint32_t wire_len; /* bytes on the wire, without a tag that the device has removed */
	uint32_t hash;     /* of the device; 0 if there is none */
	uint16_t tci;      /* of the tag that the device has removed, if HAS_TAG is set */
	uint16_t flags;
};

#define FANPCAP_DPDK_HAS_STAMP 1
#define FANPCAP_DPDK_HAS_TAG 2

/* What the caller wants of a device. */
struct fanpcap_dpdk_options {
	uint32_t buffers;     /* of each receive queue */
	uint32_t cache;       /* buffers that each thread keeps, at most 512 */
	uint32_t mtu;         /* the longest packet without its Ethernet header, if the device can */
	uint16_t queues;      /* receive queues */
	uint16_t descriptors; /* of each receive queue, if the device can */
};

/* What an opened device has. */
struct fanpcap_dpdk_facts {
	uint32_t mtu;           /* 0: the device's default */
	uint32_t descriptors;   /* of each receive queue */
	uint32_t properties;
	uint32_t most_queues;   /* receive queues that it can have */
	char driver[36];
};

#define FANPCAP_DPDK_SYMMETRIC 1  /* both directions of a flow come to one queue */
#define FANPCAP_DPDK_INTERRUPTS 2 /* a queue has a descriptor to wait on */
#define FANPCAP_DPDK_STAMPS 4     /* the device stamps packets, and its clock can be read */
#define FANPCAP_DPDK_PROMISCUOUS 8

struct fanpcap_dpdk_counts {
	uint64_t received;   /* packets that the device has delivered */
	uint64_t missed;     /* packets for which a queue had no room */
	uint64_t errors;     /* packets with errors */
	uint64_t no_buffers; /* how often there was no buffer for a packet */
};

enum fanpcap_dpdk_state { FANPCAP_DPDK_UP, FANPCAP_DPDK_DOWN, FANPCAP_DPDK_GONE };

struct fanpcap_dpdk_port;
struct fanpcap_dpdk_queue;

/*
 * The plugin's functions. Those that return an int return 0 or a negative errno. `why` gets DPDK's
 * own words about a failure, as a C string of at most `len` bytes with its end.
 */
struct fanpcap_dpdk_table {
	uint32_t version;
	uint32_t size; /* of this struct */
	/* The version of DPDK, as a C string. */
	const char *(*runs)(void);
	/* Starts the environment of DPDK, once for a process. The calling thread keeps its CPUs. */
	int (*begin)(int count, char **words, char *why, size_t len);
	/* Opens a device and starts it. `bus` is "pci" or "vdev". */
	int (*open)(const char *bus, const char *name, const char *arguments,
		    const struct fanpcap_dpdk_options *options, struct fanpcap_dpdk_port **port,
		    struct fanpcap_dpdk_facts *facts, char *why, size_t len);
	/* Ends a device. Nobody may use it or its queues any more. */
	void (*close)(struct fanpcap_dpdk_port *port);
	/* A receive queue, which one thread uses at a time. It lives as long as the device. */
	struct fanpcap_dpdk_queue *(*queue)(struct fanpcap_dpdk_port *port, uint16_t number);
	/* Lends up to `most` packets that have come, after a release. */
	uint16_t (*burst)(struct fanpcap_dpdk_queue *queue, struct fanpcap_dpdk_packet *packets,
			  uint16_t most);
	/* Takes the packets of the last burst back. */
	void (*release)(struct fanpcap_dpdk_queue *queue);
	/* How many packets wait in the queue; negative if the driver does not know it. */
	int (*waiting)(const struct fanpcap_dpdk_queue *queue);
	/* The descriptor that is readable after an interrupt of the queue; negative if there is none. */
	int (*descriptor)(const struct fanpcap_dpdk_queue *queue);
	/* Turns the queue's interrupt on; or off, so that the descriptor is not readable. */
	int (*interrupt)(struct fanpcap_dpdk_queue *queue, int on);
	int (*counts)(struct fanpcap_dpdk_port *port, struct fanpcap_dpdk_counts *counts);
	enum fanpcap_dpdk_state (*state)(struct fanpcap_dpdk_port *port);
	/* Reads the device's clock. */
	int (*clock)(struct fanpcap_dpdk_port *port, uint64_t *ticks);
	/*
	 * Sends a frame. Returns 1, 0 if the device has no room, or a negative errno for a frame
	 * that the device can't send. One thread sends at a time.
	 */
	int (*send)(struct fanpcap_dpdk_port *port, const uint8_t *bytes, uint32_t len);
	/* Registers the calling thread, which is to use queues, and removes it. */
	int (*join)(void);
	void (*leave)(void);
	/* Calls a function soon in the thread of DPDK that serves interrupts. */
	int (*in_own_thread)(void (*function)(void *), void *argument);
	/*
	 * For measurements: calls a function for each buffer of a queue of net_null, which writes a
	 * frame of at most `room` bytes. No packet is lent. Other devices: -EOPNOTSUPP.
	 */
	int (*fill)(struct fanpcap_dpdk_queue *queue,
		    void (*function)(void *argument, uint8_t *bytes, uint32_t room), void *argument);
};

/* The one symbol of the plugin. */
extern const struct fanpcap_dpdk_table fanpcap_dpdk;

#endif
