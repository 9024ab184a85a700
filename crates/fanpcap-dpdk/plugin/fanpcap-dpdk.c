/* The plugin of `fanpcap poller` for devices of DPDK. Built against DPDK 22.11 to 24.11. */
#define _GNU_SOURCE
/* rte_eth_read_clock() is experimental in 22.11. */
#define ALLOW_EXPERIMENTAL_API
#include <errno.h>
#include <netpacket/packet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_alarm.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_interrupts.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>
#include <rte_prefetch.h>
#include <rte_version.h>

#include "fanpcap-dpdk.h"

#define QUEUES 64
#define SEND_DESCRIPTORS 512
#define SEND_BUFFERS 2047
#define ROOM RTE_MBUF_DEFAULT_BUF_SIZE
/* For drivers that need a whole frame in one buffer. */
#define LARGE_ROOM (16384 + RTE_PKTMBUF_HEADROOM)
/* So many fewer buffers are large. */
#define LARGE_SHARE 4
/* The shortest frame that is sent. Some devices of Intel hang on shorter ones. */
#define SHORTEST 17
/* The longest packet of several buffers that is lent whole. */
#define LONGEST 65536

/* Buffers of the usual size, and large ones. */
enum size { USUAL, LARGE, SIZES };

struct fanpcap_dpdk_queue {
	/* A driver that has refused one of them may have buffers of it until the device is closed. */
	struct rte_mempool *pools[SIZES];
	struct rte_mempool *pool;
	uint16_t port, number;
	/* Packets: those before `freed` are given back, those before `lent` are lent. */
	uint16_t freed, lent, count;
	struct rte_mbuf *held[FANPCAP_DPDK_BURST];
	/* Packets of several buffers are copied together here. */
	uint8_t *together;
	/* An epoll instance that watches the queue's interrupt; negative if it has none. */
	int epoll;
};

struct fanpcap_dpdk_port {
	uint16_t id, queue_count;
	bool is_promiscuous, sends_chains;
	/* A packet socket that makes the interface below promiscuous; negative if there is none. */
	int membership;
	/* The longest frame that is sent. */
	uint32_t longest;
	struct rte_mempool *send_pool;
	struct fanpcap_dpdk_queue queues[QUEUES];
};

/* What set-up leaves out when a driver refuses it. */
enum { NO_INTERRUPTS = 1, NO_RSS = 2, LARGE_BUFFERS = 4 };

/* Ports whose device was removed. */
static atomic_bool removed[RTE_MAX_ETHPORTS];

static int stamp_offset = -1;
static uint64_t stamp_flag;

/*
 * DPDK's messages while a function runs. Another thread may write to the stream when the function
 * has ended, so the stream is never closed.
 */
static struct {
	FILE *stream;
	char *text;
	size_t len;
	/* Where the messages end that tell why the function has failed. */
	size_t reason_end;
} said;

/* Begins to collect messages. Returns where they begin. */
static size_t collect(void)
{
	if (said.stream == NULL)
		said.stream = open_memstream(&said.text, &said.len);
	if (said.stream == NULL)
		return 0;
	fflush(said.stream);
	rte_openlog_stream(said.stream);
	said.reason_end = SIZE_MAX;
	return said.len;
}

/* Leaves out the messages that follow: those of the steps that undo others. */
static void end_reason(void)
{
	if (said.stream == NULL)
		return;
	fflush(said.stream);
	said.reason_end = said.len;
}

/* Copies the last lines from `begin` on to `why`, with "; " between them. */
static void copy_lines(size_t begin, char *why, size_t len)
{
	size_t end = RTE_MIN(said.len, said.reason_end);
	while (end > begin && said.text[end - 1] == '\n')
		end--;
	if (end - begin >= len)
		begin = end - len + 1;
	char *to = why;
	for (size_t at = begin; at < end && to < why + len - 2; at++) {
		bool is_end = said.text[at] == '\n';
		*to++ = is_end ? ';' : said.text[at];
		if (is_end)
			*to++ = ' ';
	}
	*to = '\0';
}

/* Ends the collection. Copies the messages to `why` if the function has failed. */
static void tell(size_t begin, int failed, char *why, size_t len)
{
	rte_openlog_stream(NULL);
	if (said.stream == NULL)
		return;
	flockfile(said.stream);
	fflush(said.stream);
	if (failed && len > 1)
		copy_lines(begin, why, len);
	funlockfile(said.stream);
}

static int begin(int count, char **arguments, char *why, size_t len)
{
	cpu_set_t cpus;
	pthread_getaffinity_np(pthread_self(), sizeof(cpus), &cpus);
	size_t from = collect();
	int rc = rte_eal_init(count, arguments) < 0 ? -rte_errno : 0;
	tell(from, rc, why, len);
	pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
	/* Without shared files, nothing is in this directory. */
	if (rc == 0 && rte_eal_get_runtime_dir() != NULL)
		(void)rmdir(rte_eal_get_runtime_dir());
	return rc;
}

static struct rte_mempool *make_pool(uint16_t port, uint16_t number, char kind, uint32_t buffers,
				     uint32_t cache, uint16_t room)
{
	char name[RTE_MEMPOOL_NAMESIZE];
	snprintf(name, sizeof(name), "fp%c%u.%u", kind, port, number);
	return rte_pktmbuf_pool_create(name, buffers, cache, 0, room,
				       rte_eth_dev_socket_id(port));
}

/* The longest frame, as far as the device allows it. 0 for the device's default. */
static uint32_t mtu_of(const struct rte_eth_dev_info *info, uint32_t wanted)
{
	uint32_t most = RTE_MIN(wanted, (uint32_t)info->max_mtu);
	return most > RTE_ETHER_MTU ? most : 0;
}

static void ask_for_rss(const struct rte_eth_dev_info *info, struct rte_eth_conf *conf)
{
	/* DPDK and drivers keep the pointer. */
	static uint8_t key[UINT8_MAX];
	uint64_t of = RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_SCTP;
	conf->rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
	conf->rx_adv_conf.rss_conf.rss_hf = info->flow_type_rss_offloads & of;
	/* A key with a period of 16 bits gives both directions of a flow the same hash. */
	for (int at = 0; at < info->hash_key_size; at++)
		key[at] = at % 2 == 0 ? 0x6d : 0x5a;
	if (info->hash_key_size > 0) {
		conf->rx_adv_conf.rss_conf.rss_key = key;
		conf->rx_adv_conf.rss_conf.rss_key_len = info->hash_key_size;
	}
}

static void ask_for_stamps(uint16_t port, const struct rte_eth_dev_info *info,
			   struct rte_eth_conf *conf)
{
	uint64_t ticks;
	if (!(info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_TIMESTAMP))
		return;
	/* Stamps of a clock that can't be read have an unknown unit. */
	if (rte_eth_read_clock(port, &ticks) != 0)
		return;
	if (stamp_offset < 0 && rte_mbuf_dyn_rx_timestamp_register(&stamp_offset, &stamp_flag) != 0)
		return;
	conf->rxmode.offloads |= RTE_ETH_RX_OFFLOAD_TIMESTAMP;
}

static void free_pools(struct fanpcap_dpdk_port *port)
{
	for (uint16_t at = 0; at < QUEUES; at++) {
		rte_mempool_free(port->queues[at].pools[USUAL]);
		rte_mempool_free(port->queues[at].pools[LARGE]);
	}
	rte_mempool_free(port->send_pool);
}

/* Frees the pools of refused attempts, except those whose buffers the driver has kept. */
static void free_pools_of(struct fanpcap_dpdk_port *port, uint16_t queues, enum size size)
{
	for (uint16_t at = 0; at < queues; at++) {
		struct rte_mempool **pool = &port->queues[at].pools[size];
		if (*pool == NULL || !rte_mempool_full(*pool))
			continue;
		rte_mempool_free(*pool);
		*pool = NULL;
	}
}

static int make_pools(struct fanpcap_dpdk_port *port, const struct fanpcap_dpdk_options *options,
		      enum size size)
{
	/* There need not be memory for both sizes. */
	free_pools_of(port, options->queues, size == LARGE ? USUAL : LARGE);
	uint16_t room = size == LARGE ? LARGE_ROOM : ROOM;
	uint32_t buffers = size == LARGE ? options->buffers / LARGE_SHARE : options->buffers;
	if (port->send_pool == NULL)
		port->send_pool = make_pool(port->id, 0, 's', SEND_BUFFERS, 0, ROOM);
	if (port->send_pool == NULL)
		return -rte_errno;
	for (uint16_t at = 0; at < options->queues; at++) {
		struct fanpcap_dpdk_queue *queue = &port->queues[at];
		if (queue->pools[size] == NULL)
			queue->pools[size] = make_pool(port->id, at, "rl"[size], buffers,
						       options->cache, room);
		queue->pool = queue->pools[size];
		if (queue->pool == NULL)
			return -rte_errno;
	}
	return 0;
}

static int make_queues(struct fanpcap_dpdk_port *port, const struct rte_eth_dev_info *info,
		       const struct fanpcap_dpdk_options *options, uint16_t senders,
		       enum size size, struct fanpcap_dpdk_facts *facts)
{
	uint16_t descriptors = options->descriptors, send = SEND_DESCRIPTORS;
	int socket = rte_eth_dev_socket_id(port->id);
	/* A queue without room must not stop the others. */
	struct rte_eth_rxconf conf = info->default_rxconf;
	conf.rx_drop_en = 1;
	if (size == LARGE)
		descriptors /= LARGE_SHARE;
	int rc = make_pools(port, options, size);
	if (rc == 0)
		rc = rte_eth_dev_adjust_nb_rx_tx_desc(port->id, &descriptors, &send);
	facts->descriptors = descriptors;
	for (uint16_t at = 0; at < options->queues && rc == 0; at++)
		rc = rte_eth_rx_queue_setup(port->id, at, descriptors, socket, &conf,
					    port->queues[at].pool);
	for (uint16_t at = 0; at < senders && rc == 0; at++)
		rc = rte_eth_tx_queue_setup(port->id, at, send, socket, NULL);
	return rc;
}

static int set_up(struct fanpcap_dpdk_port *port, const struct rte_eth_dev_info *info,
		  const struct fanpcap_dpdk_options *options, int without,
		  struct fanpcap_dpdk_facts *facts)
{
	struct rte_eth_conf conf = {.intr_conf.rxq = !(without & NO_INTERRUPTS)};
	bool has_rss = options->queues > 1 && info->flow_type_rss_offloads != 0;
	if (has_rss && !(without & NO_RSS))
		ask_for_rss(info, &conf);
	ask_for_stamps(port->id, info, &conf);
	conf.rxmode.offloads |= info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
	conf.txmode.offloads |= info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	conf.rxmode.mtu = mtu_of(info, options->mtu);
	/* Some drivers want as many queues that send. */
	uint16_t senders = RTE_MIN(options->queues, info->max_tx_queues);
	int rc = rte_eth_dev_configure(port->id, options->queues, senders, &conf);
	if (rc != 0 && conf.rxmode.mtu != 0) {
		conf.rxmode.mtu = 0;
		rc = rte_eth_dev_configure(port->id, options->queues, senders, &conf);
	}
	if (rc == 0)
		rc = make_queues(port, info, options, senders,
				 without & LARGE_BUFFERS ? LARGE : USUAL, facts);
	if (rc == 0)
		rc = rte_eth_dev_start(port->id);
	if (rc != 0)
		return rc;
	uint16_t mtu = 0;
	(void)rte_eth_dev_get_mtu(port->id, &mtu);
	port->longest = (mtu == 0 ? RTE_ETHER_MTU : mtu) + RTE_ETHER_HDR_LEN + RTE_VLAN_HLEN;
	port->sends_chains = (conf.txmode.offloads & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0;
	facts->mtu = conf.rxmode.mtu;
	facts->properties = 0;
	if (conf.rx_adv_conf.rss_conf.rss_key != NULL)
		facts->properties |= FANPCAP_DPDK_SYMMETRIC;
	if (conf.rxmode.offloads & RTE_ETH_RX_OFFLOAD_TIMESTAMP)
		facts->properties |= FANPCAP_DPDK_STAMPS;
	return 0;
}

static int start(struct fanpcap_dpdk_port *port, const struct fanpcap_dpdk_options *options,
		 struct fanpcap_dpdk_facts *facts)
{
	static const int attempts[] = {
		0,
		NO_INTERRUPTS,
		LARGE_BUFFERS,
		NO_INTERRUPTS | LARGE_BUFFERS,
		NO_INTERRUPTS | NO_RSS,
		NO_INTERRUPTS | NO_RSS | LARGE_BUFFERS,
	};
	struct rte_eth_dev_info info;
	int rc = rte_eth_dev_info_get(port->id, &info);
	if (rc != 0)
		return rc;
	snprintf(facts->driver, sizeof(facts->driver), "%s", info.driver_name);
	facts->most_queues = RTE_MIN(info.max_rx_queues, QUEUES);
	if (options->queues > facts->most_queues)
		return -E2BIG;
	/* A later attempt may lack memory because of an earlier one, so its error says less. */
	int first = -ENOMEM;
	for (size_t at = 0; at < RTE_DIM(attempts); at++) {
		rc = set_up(port, &info, options, attempts[at], facts);
		if (rc == 0)
			return 0;
		if (first == -ENOMEM)
			first = rc;
	}
	return first;
}

static void close_port(struct fanpcap_dpdk_port *port)
{
	if (port->is_promiscuous)
		(void)rte_eth_promiscuous_disable(port->id);
	if (port->membership >= 0)
		close(port->membership);
	for (uint16_t at = 0; at < port->queue_count; at++) {
		struct fanpcap_dpdk_queue *queue = &port->queues[at];
		rte_pktmbuf_free_bulk(queue->held + queue->freed, queue->count - queue->freed);
		free(queue->together);
	}
	(void)rte_eth_dev_stop(port->id);
	(void)rte_eth_dev_close(port->id);
	/* The device takes its interrupts out of these. */
	for (uint16_t at = 0; at < port->queue_count; at++) {
		if (port->queues[at].epoll >= 0)
			close(port->queues[at].epoll);
	}
	free_pools(port);
	free(port);
}

/* Closes the port. Drivers complain about interrupts that the device does not have. */
static void close_quietly(struct fanpcap_dpdk_port *port)
{
	size_t from = collect();
	close_port(port);
	tell(from, 0, NULL, 0);
}

/*
 * Whether the queue's interrupt has a descriptor that no earlier queue has. DPDK adds a descriptor
 * to one epoll instance only, and reports success for the others.
 */
static bool has_own_interrupt(const struct fanpcap_dpdk_queue *queue)
{
	int fd = rte_eth_dev_rx_intr_ctl_q_get_fd(queue->port, queue->number);
	for (uint16_t earlier = 0; earlier < queue->number; earlier++) {
		if (rte_eth_dev_rx_intr_ctl_q_get_fd(queue->port, earlier) == fd)
			return false;
	}
	return fd >= 0;
}

/* Watches the queue's interrupt. Returns whether the queue has one of its own. */
static bool watch(struct fanpcap_dpdk_queue *queue)
{
	queue->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (queue->epoll < 0)
		return false;
	if (rte_eth_dev_rx_intr_ctl_q(queue->port, queue->number, queue->epoll,
				      RTE_INTR_EVENT_ADD, NULL) == 0)
		return has_own_interrupt(queue);
	close(queue->epoll);
	queue->epoll = -1;
	return false;
}

static int make_lenders(struct fanpcap_dpdk_port *port, uint16_t queues,
			struct fanpcap_dpdk_facts *facts)
{
	bool has_all = true;
	for (uint16_t at = 0; at < queues; at++) {
		struct fanpcap_dpdk_queue *queue = &port->queues[at];
		queue->port = port->id;
		queue->number = at;
		/* Its pages are used when there are such packets. */
		queue->together = malloc((size_t)FANPCAP_DPDK_BURST * LONGEST);
		has_all &= watch(queue);
		port->queue_count++;
		if (queue->together == NULL)
			return -ENOMEM;
	}
	if (has_all)
		facts->properties |= FANPCAP_DPDK_INTERRUPTS;
	return 0;
}

/*
 * The port of the device `name`. Drivers such as mlx4 and mana name their ports otherwise than the
 * device.
 */
static int port_of(const char *name, uint16_t *id)
{
	struct rte_eth_dev_info info;
	uint16_t at;
	unsigned int found = 0;
	if (rte_eth_dev_get_port_by_name(name, id) == 0)
		return 0;
	RTE_ETH_FOREACH_DEV(at) {
		if (rte_eth_dev_info_get(at, &info) == 0 && info.device != NULL &&
		    strcmp(rte_dev_name(info.device), name) == 0) {
			*id = at;
			found++;
		}
	}
	if (found > 1)
		RTE_LOG(ERR, USER1, "the device has %u ports, fanpcap needs one\n", found);
	return found == 1 ? 0 : -ENODEV;
}

static void note_event(const char *name, enum rte_dev_event_type event, void *flag)
{
	(void)name;
	if (event == RTE_DEV_EVENT_REMOVE)
		atomic_store((atomic_bool *)flag, true);
}

/*
 * Notes when the kernel asks for a device that vfio-pci holds. The callback stays for ever: to
 * unregister it may remove those of other devices, in DPDK 22.11.
 */
static void watch_removal(const char *name, uint16_t id)
{
	atomic_store(&removed[id], false);
	(void)rte_dev_event_callback_register(name, note_event, &removed[id]);
}

/*
 * Makes the interface below a virtual device promiscuous, until the socket is closed. The drivers
 * of these devices set a flag of the interface instead (IFF_PROMISC). The flag would stay if the
 * process were killed, and to take it back needs a privilege that the poller has dropped by then.
 * Returns the socket, or a negative number.
 */
static int join_promiscuous(int interface)
{
	struct packet_mreq request = {.mr_ifindex = interface, .mr_type = PACKET_MR_PROMISC};
	/* Protocol 0: the socket gets no packets. */
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (fd >= 0 && setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request,
				  sizeof(request)) != 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Lets the device take frames for other hosts. Returns whether it does. */
static bool make_promiscuous(struct fanpcap_dpdk_port *port)
{
	struct rte_eth_dev_info info;
	if (rte_eth_dev_info_get(port->id, &info) == 0 && info.if_index > 0 &&
	    (strcmp(info.driver_name, "net_af_packet") == 0 ||
	     strcmp(info.driver_name, "net_af_xdp") == 0)) {
		port->membership = join_promiscuous((int)info.if_index);
		return port->membership >= 0;
	}
	if (rte_eth_promiscuous_get(port->id) == 1)
		return true;
	port->is_promiscuous = rte_eth_promiscuous_enable(port->id) == 0;
	return port->is_promiscuous;
}

static int open_named(const char *bus, const char *name, const char *arguments,
		      const struct fanpcap_dpdk_options *options, struct fanpcap_dpdk_port *port,
		      struct fanpcap_dpdk_facts *facts)
{
	int rc = rte_eal_hotplug_add(bus, name, arguments);
	if (rc != 0)
		return rc;
	rc = port_of(name, &port->id);
	if (rc == 0)
		rc = start(port, options, facts);
	if (rc != 0) {
		end_reason();
		(void)rte_eal_hotplug_remove(bus, name);
		free_pools(port);
		return rc;
	}
	watch_removal(name, port->id);
	(void)rte_eth_stats_reset(port->id);
	if (make_promiscuous(port))
		facts->properties |= FANPCAP_DPDK_PROMISCUOUS;
	return make_lenders(port, options->queues, facts);
}

static int open_port(const char *bus, const char *name, const char *arguments,
		     const struct fanpcap_dpdk_options *options, struct fanpcap_dpdk_port **opened,
		     struct fanpcap_dpdk_facts *facts, char *why, size_t len)
{
	struct fanpcap_dpdk_port *port = calloc(1, sizeof(*port));
	if (port == NULL)
		return -ENOMEM;
	port->membership = -1;
	size_t from = collect();
	int rc = open_named(bus, name, arguments, options, port, facts);
	tell(from, rc, why, len);
	if (rc == 0)
		*opened = port;
	else if (port->queue_count > 0)
		close_quietly(port);
	else
		free(port);
	return rc;
}

static struct fanpcap_dpdk_queue *queue_of(struct fanpcap_dpdk_port *port, uint16_t number)
{
	return number < port->queue_count ? &port->queues[number] : NULL;
}

static void release(struct fanpcap_dpdk_queue *queue)
{
	rte_pktmbuf_free_bulk(queue->held + queue->freed, queue->lent - queue->freed);
	queue->freed = queue->lent;
}

/* Copies a packet of several buffers. Returns how many bytes are copied. */
static uint32_t gather(const struct rte_mbuf *packet, uint8_t *to)
{
	uint32_t len = 0;
	for (; packet != NULL; packet = packet->next) {
		uint32_t part = RTE_MIN((uint32_t)rte_pktmbuf_data_len(packet), LONGEST - len);
		memcpy(to + len, rte_pktmbuf_mtod(packet, const uint8_t *), part);
		len += part;
	}
	return len;
}

static uint16_t burst(struct fanpcap_dpdk_queue *queue, struct fanpcap_dpdk_packet *packets,
		      uint16_t most)
{
	uint8_t *together = queue->together;
	release(queue);
	/* Some drivers give nothing if less is asked for. */
	if (queue->lent == queue->count) {
		queue->freed = queue->lent = 0;
		queue->count = rte_eth_rx_burst(queue->port, queue->number, queue->held,
						FANPCAP_DPDK_BURST);
	}
	uint16_t number = RTE_MIN(most, queue->count - queue->lent);
	struct rte_mbuf **held = queue->held + queue->lent;
	for (uint16_t at = 0; at < number; at++) {
		const struct rte_mbuf *packet = held[at];
		struct fanpcap_dpdk_packet *out = &packets[at];
		uint64_t flags = packet->ol_flags;
		if (at + 4 < number)
			rte_prefetch0(rte_pktmbuf_mtod(held[at + 4], const void *));
		out->wire_len = rte_pktmbuf_pkt_len(packet);
		if (likely(packet->nb_segs == 1)) {
			out->bytes = rte_pktmbuf_mtod(packet, const uint8_t *);
			out->len = rte_pktmbuf_data_len(packet);
		} else {
			out->bytes = together;
			out->len = gather(packet, together);
			together += RTE_ALIGN(out->len, RTE_CACHE_LINE_SIZE);
		}
		out->hash = flags & RTE_MBUF_F_RX_RSS_HASH ? packet->hash.rss : 0;
		out->flags = 0;
		if (flags & RTE_MBUF_F_RX_VLAN_STRIPPED) {
			out->tci = packet->vlan_tci;
			out->flags |= FANPCAP_DPDK_HAS_TAG;
		}
		if (flags & stamp_flag) {
			out->stamp = *RTE_MBUF_DYNFIELD(packet, stamp_offset, uint64_t *);
			out->flags |= FANPCAP_DPDK_HAS_STAMP;
		}
	}
	queue->lent += number;
	return number;
}

static int waiting(const struct fanpcap_dpdk_queue *queue)
{
	return rte_eth_rx_queue_count(queue->port, queue->number);
}

static int descriptor(const struct fanpcap_dpdk_queue *queue)
{
	return queue->epoll;
}

static int interrupt(struct fanpcap_dpdk_queue *queue, int on)
{
	struct rte_epoll_event event;
	if (on)
		return rte_eth_dev_rx_intr_enable(queue->port, queue->number);
	/* Takes the event as the driver wants it. */
	(void)rte_epoll_wait(queue->epoll, &event, 1, 0);
	return rte_eth_dev_rx_intr_disable(queue->port, queue->number);
}

static int counts(struct fanpcap_dpdk_port *port, struct fanpcap_dpdk_counts *counts)
{
	struct rte_eth_stats stats;
	int rc = rte_eth_stats_get(port->id, &stats);
	if (rc == 0) {
		counts->received = stats.ipackets;
		counts->missed = stats.imissed;
		counts->errors = stats.ierrors;
		counts->no_buffers = stats.rx_nombuf;
	}
	return rc;
}

static enum fanpcap_dpdk_state state(struct fanpcap_dpdk_port *port)
{
	struct rte_eth_link link;
	if (atomic_load(&removed[port->id]) || rte_eth_dev_is_removed(port->id))
		return FANPCAP_DPDK_GONE;
	int rc = rte_eth_link_get_nowait(port->id, &link);
	bool is_down = rc == 0 && link.link_status == RTE_ETH_LINK_DOWN;
	return is_down ? FANPCAP_DPDK_DOWN : FANPCAP_DPDK_UP;
}

static int read_clock(struct fanpcap_dpdk_port *port, uint64_t *ticks)
{
	return rte_eth_read_clock(port->id, ticks);
}

/* A packet of as many buffers as the frame needs. */
static struct rte_mbuf *packet_of(struct rte_mempool *pool, const uint8_t *bytes, uint32_t len)
{
	struct rte_mbuf *first = NULL;
	do {
		struct rte_mbuf *part = rte_pktmbuf_alloc(pool);
		uint16_t here = 0;
		if (part != NULL) {
			here = RTE_MIN(len, (uint32_t)rte_pktmbuf_tailroom(part));
			memcpy(rte_pktmbuf_append(part, here), bytes, here);
		}
		if (part == NULL || (first != NULL && rte_pktmbuf_chain(first, part) != 0)) {
			rte_pktmbuf_free(part);
			rte_pktmbuf_free(first);
			return NULL;
		}
		first = first == NULL ? part : first;
		bytes += here;
		len -= here;
	} while (len > 0);
	return first;
}

/* A frame that a device can't send stops the queue of some devices, so none reaches the device. */
static int send_frame(struct fanpcap_dpdk_port *port, const uint8_t *bytes, uint32_t len)
{
	if (len < SHORTEST)
		return -EINVAL;
	if (len > port->longest)
		return -EMSGSIZE;
	struct rte_mbuf *packet = packet_of(port->send_pool, bytes, len);
	if (packet == NULL)
		return 0;
	bool is_sendable = packet->nb_segs == 1 || port->sends_chains;
	if (!is_sendable || rte_eth_tx_prepare(port->id, 0, &packet, 1) != 1) {
		rte_pktmbuf_free(packet);
		return -EINVAL;
	}
	int sent = rte_eth_tx_burst(port->id, 0, &packet, 1);
	if (sent == 0)
		rte_pktmbuf_free(packet);
	return sent;
}

struct filling {
	void (*function)(void *argument, uint8_t *bytes, uint32_t room);
	void *argument;
};

static void fill_one(struct rte_mempool *pool, void *filling, void *object, unsigned int index)
{
	struct filling *with = filling;
	struct rte_mbuf *buffer = object;
	(void)pool;
	(void)index;
	with->function(with->argument, (uint8_t *)buffer->buf_addr + RTE_PKTMBUF_HEADROOM,
		       buffer->buf_len - RTE_PKTMBUF_HEADROOM);
}

static int fill(struct fanpcap_dpdk_queue *queue,
		void (*function)(void *argument, uint8_t *bytes, uint32_t room), void *argument)
{
	struct filling filling = {function, argument};
	struct rte_eth_dev_info info;
	int rc = rte_eth_dev_info_get(queue->port, &info);
	if (rc != 0)
		return rc;
	/* The driver of another device may write to the same buffers now. */
	if (strcmp(info.driver_name, "net_null") != 0)
		return -EOPNOTSUPP;
	rte_mempool_obj_iter(queue->pool, fill_one, &filling);
	return 0;
}

static int in_own_thread(void (*function)(void *), void *argument)
{
	return rte_eal_alarm_set(1, function, argument);
}

static int join(void)
{
	return rte_thread_register() == 0 ? 0 : -rte_errno;
}

const struct fanpcap_dpdk_table fanpcap_dpdk = {
	.version = FANPCAP_DPDK_VERSION,
	.size = sizeof(struct fanpcap_dpdk_table),
	.runs = rte_version,
	.begin = begin,
	.open = open_port,
	.close = close_quietly,
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
	.leave = rte_thread_unregister,
	.in_own_thread = in_own_thread,
	.fill = fill,
};
