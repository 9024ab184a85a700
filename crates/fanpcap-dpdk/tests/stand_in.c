/* A plugin without DPDK, for tests of what loads and uses a plugin: it invents its devices. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fanpcap-dpdk.h"

#ifndef STAND_IN_VERSION
#define STAND_IN_VERSION FANPCAP_DPDK_VERSION
#endif

#define LEN 60
#define LONG_LEN 9000
#define QUEUES 4

struct fanpcap_dpdk_queue {
	struct fanpcap_dpdk_port *port;
	uint16_t number;
	int event, lent;
	uint64_t left, next;
	uint8_t frames[FANPCAP_DPDK_BURST][LONG_LEN];
};

struct fanpcap_dpdk_port {
	/* Packets that are lent now, and frames that were sent. */
	atomic_int lent, sent;
	atomic_int state;
	atomic_ullong missed, errors;
	uint64_t ticks;
	struct fanpcap_dpdk_queue *queues[QUEUES];
	/* The last frame that was sent comes back once. */
	_Atomic uint32_t back;
	uint8_t frame[LONG_LEN];
};

static _Thread_local int has_joined;

static const char *runs(void)
{
	return "stand-in for DPDK";
}

static int begin(int count, char **words, char *why, size_t len)
{
	for (int at = 0; at < count; at++) {
		if (strcmp(words[at], "--refuse") == 0) {
			snprintf(why, len, "refused: %d words", count);
			return -EPERM;
		}
	}
	return words[count] == NULL ? 0 : -EINVAL;
}

static uint64_t number_after(const char *arguments, const char *key, uint64_t otherwise)
{
	const char *at = strstr(arguments, key);
	return at == NULL ? otherwise : strtoull(at + strlen(key), NULL, 10);
}

static int open_one(const char *bus, const char *name, const char *arguments,
		    const struct fanpcap_dpdk_options *options, struct fanpcap_dpdk_port **opened,
		    struct fanpcap_dpdk_facts *facts, char *why, size_t len)
{
	facts->most_queues = QUEUES;
	snprintf(why, len, "%s of bus %s", name, bus);
	if (strcmp(name, "net_absent0") == 0)
		return -ENODEV;
	if (strcmp(name, "net_forbidden0") == 0)
		return -EACCES;
	if (options->queues > QUEUES)
		return -E2BIG;
	struct fanpcap_dpdk_port *port = calloc(1, sizeof(*port));
	for (uint16_t at = 0; at < options->queues; at++) {
		struct fanpcap_dpdk_queue *queue = calloc(1, sizeof(*queue));
		queue->port = port;
		queue->number = at;
		queue->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		queue->left = number_after(arguments, "count=", 0);
		port->queues[at] = queue;
	}
	atomic_store(&port->missed, number_after(arguments, "missed=", 0));
	atomic_store(&port->errors, number_after(arguments, "errors=", 0));
	facts->mtu = options->mtu;
	facts->descriptors = options->descriptors;
	facts->properties = FANPCAP_DPDK_STAMPS | FANPCAP_DPDK_PROMISCUOUS;
	if (options->queues > 1)
		facts->properties |= FANPCAP_DPDK_SYMMETRIC;
	if (strstr(arguments, "interrupts") != NULL)
		facts->properties |= FANPCAP_DPDK_INTERRUPTS;
	snprintf(facts->driver, sizeof(facts->driver), "stand-in");
	*opened = port;
	return 0;
}

/* DPDK has no lock for this. */
static atomic_flag changes = ATOMIC_FLAG_INIT;

static void begin_change(void)
{
	if (atomic_flag_test_and_set(&changes))
		abort();
	/* Lets other threads come. */
	usleep(100);
}

static int open_port(const char *bus, const char *name, const char *arguments,
		     const struct fanpcap_dpdk_options *options, struct fanpcap_dpdk_port **opened,
		     struct fanpcap_dpdk_facts *facts, char *why, size_t len)
{
	begin_change();
	int rc = open_one(bus, name, arguments, options, opened, facts, why, len);
	atomic_flag_clear(&changes);
	return rc;
}

static void close_port(struct fanpcap_dpdk_port *port)
{
	begin_change();
	/* A caller that closes a device while packets are lent would read freed memory. */
	if (atomic_load(&port->lent) != 0)
		abort();
	for (int at = 0; at < QUEUES; at++) {
		if (port->queues[at] != NULL)
			close(port->queues[at]->event);
		free(port->queues[at]);
	}
	free(port);
	atomic_flag_clear(&changes);
}

static struct fanpcap_dpdk_queue *queue_of(struct fanpcap_dpdk_port *port, uint16_t number)
{
	return number < QUEUES ? port->queues[number] : NULL;
}

static void release(struct fanpcap_dpdk_queue *queue)
{
	for (int at = 0; at < queue->lent; at++)
		memset(queue->frames[at], 0xee, LEN);
	atomic_fetch_sub(&queue->port->lent, queue->lent);
	queue->lent = 0;
}

/* An Ethernet frame with an IPv4 header, an UDP header, and the number as tests write it. */
static void write_frame(uint8_t *frame, uint16_t queue, uint64_t number)
{
	static const uint8_t head[] = {
		2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, /* Ethernet */
		0x45, 0, 0, LEN - 14, 0, 0, 0, 0, 64, 17, 0, 0, /* IPv4, UDP */
	};
	memset(frame, 0, LEN);
	memcpy(frame, head, sizeof(head));
	frame[26] = frame[30] = 10;
	frame[29] = (uint8_t)(number % 16);
	frame[33] = 99;
	frame[37] = (uint8_t)queue;
	frame[39] = LEN - 34;
	memcpy(frame + 42, "FANP", 4);
	for (int at = 0; at < 8; at++)
		frame[46 + at] = (uint8_t)(number >> (56 - 8 * at));
}

static uint16_t burst(struct fanpcap_dpdk_queue *queue, struct fanpcap_dpdk_packet *packets,
		      uint16_t most)
{
	struct fanpcap_dpdk_port *port = queue->port;
	uint16_t count = 0;
	release(queue);
	/* Only a thread that has joined may take packets. */
	if (!has_joined)
		return 0;
	uint32_t back = queue->number == 0 ? atomic_exchange(&port->back, 0) : 0;
	if (back > 0 && most > 0) {
		memcpy(queue->frames[0], port->frame, back);
		packets[count] = (struct fanpcap_dpdk_packet){
			.bytes = queue->frames[0], .len = back, .wire_len = back,
			.tci = 7, .flags = FANPCAP_DPDK_HAS_TAG};
		count++;
	}
	for (; count < most && queue->left > 0; count++) {
		write_frame(queue->frames[count], queue->number, queue->next);
		packets[count] = (struct fanpcap_dpdk_packet){
			.bytes = queue->frames[count], .len = LEN, .wire_len = LEN,
			.hash = 1000 + (uint32_t)queue->next, .stamp = 5000 + queue->next,
			.flags = FANPCAP_DPDK_HAS_STAMP};
		queue->next++;
		queue->left--;
	}
	queue->lent = count;
	atomic_fetch_add(&port->lent, count);
	return count;
}

static int waiting(const struct fanpcap_dpdk_queue *queue)
{
	return queue->left > INT32_MAX ? INT32_MAX : (int)queue->left;
}

static int descriptor(const struct fanpcap_dpdk_queue *queue)
{
	return queue->event;
}

static int interrupt(struct fanpcap_dpdk_queue *queue, int on)
{
	uint64_t count;
	if (!on && read(queue->event, &count, 8) < 0)
		return -EAGAIN;
	return 0;
}

static int counts(struct fanpcap_dpdk_port *port, struct fanpcap_dpdk_counts *counts)
{
	memset(counts, 0, sizeof(*counts));
	for (int at = 0; at < QUEUES; at++)
		counts->received += port->queues[at] == NULL ? 0 : port->queues[at]->next;
	counts->missed = atomic_load(&port->missed);
	counts->errors = atomic_load(&port->errors);
	counts->no_buffers = atomic_load(&port->lent);
	return 0;
}

static enum fanpcap_dpdk_state state(struct fanpcap_dpdk_port *port)
{
	return atomic_load(&port->state);
}

static int read_clock(struct fanpcap_dpdk_port *port, uint64_t *ticks)
{
	*ticks = port->ticks += 1000;
	return 0;
}

/* A frame comes back as a packet. Frames of one byte change the device's state. */
static int send_frame(struct fanpcap_dpdk_port *port, const uint8_t *bytes, uint32_t len)
{
	if (len > LONG_LEN)
		return -EMSGSIZE;
	if (len == 1) {
		atomic_store(&port->state, bytes[0]);
		return 1;
	}
	if (atomic_load(&port->back) != 0)
		return 0;
	memcpy(port->frame, bytes, len);
	atomic_store(&port->back, len);
	uint64_t one = 1;
	atomic_fetch_add(&port->sent, 1);
	return write(port->queues[0]->event, &one, 8) == 8;
}

static int join(void)
{
	has_joined = 1;
	return 0;
}

static void leave(void)
{
	has_joined = 0;
}

struct call {
	void (*function)(void *);
	void *argument;
};

static void *run(void *call)
{
	struct call it = *(struct call *)call;
	free(call);
	it.function(it.argument);
	return NULL;
}

static int in_own_thread(void (*function)(void *), void *argument)
{
	pthread_t thread;
	struct call *call = malloc(sizeof(*call));
	*call = (struct call){function, argument};
	if (pthread_create(&thread, NULL, run, call) != 0)
		return -EAGAIN;
	pthread_detach(thread);
	return 0;
}

static int fill(struct fanpcap_dpdk_queue *queue,
		void (*function)(void *argument, uint8_t *bytes, uint32_t room), void *argument)
{
	for (int at = 0; at < FANPCAP_DPDK_BURST; at++)
		function(argument, queue->frames[at], LONG_LEN);
	return 0;
}

const struct fanpcap_dpdk_table fanpcap_dpdk = {
	.version = STAND_IN_VERSION,
	.size = sizeof(struct fanpcap_dpdk_table),
	.runs = runs,
	.begin = begin,
	.open = open_port,
	.close = close_port,
	.queue = queue_of,
	.burst = burst,
	.release = release,
	.waiting = waiting,
	.descriptor = descriptor,
	.interrupt = interrupt,
	.counts = counts,
	.state = state,
	.clock = read_clock,
	.send = send_frame,
	.join = join,
	.leave = leave,
	.in_own_thread = in_own_thread,
	.fill = fill,
};
