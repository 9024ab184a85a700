/* A stand-in for libpfring: the functions of pfring.h that fanpcap calls, on packet sockets. A
   cluster is a fan-out group of the kernel's. It shows that the functions are called as pfring.h
   publishes them. It does not show what PF_RING does. As libpfring, it lacks functions of libpcap,
   and names no library that has them. */
#include <errno.h>
#include <linux/filter.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "tag.h"

enum { BURST = 64, LONGEST = 65600, ROOM = LONGEST + TAG, PLACES = 64, NOT_SUPPORTED = -7 };

// struct pfring_pkthdr with a short header: the real one has more fields after these.
struct header {
  int64_t seconds, microseconds;
  uint32_t caplen, len;
  uint64_t timestamp_ns;
  uint32_t flags;
  uint8_t rx_direction, port_id;
  uint16_t device_id;
  int32_t if_index;
  uint32_t pkt_hash;
} __attribute__((packed));

struct info {
  unsigned char *data;
  int64_t seconds, microseconds;
  uint16_t caplen, len;
  uint32_t flags, hash;
};

struct counts {
  uint64_t recv, drop, shunt;
};

typedef struct {
  int fd, waits, ifindex, is_zc, is_enabled, is_received_only, cluster, type, is_relaxed, has_left;
  unsigned int caplen;
  uint64_t read, dropped;
  unsigned char *buffers;
} pfring;

// The numbers of fan-out groups that are no clusters' begin here.
enum { QUEUES_OF = 40000 };

static int number_of(const char *name, int otherwise) {
  const char *text = getenv(name);
  return text ? atoi(text) : otherwise;
}

pfring *pfring_open(const char *name, uint32_t caplen, uint32_t flags) {
  int error = number_of("STANDIN_OPEN_ERROR", 0);
  if (error) {
    errno = error;
    return NULL;
  }
  pfring *ring = calloc(1, sizeof *ring);
  char device[IFNAMSIZ];
  ring->is_zc = strncmp(name, "zc:", 3) == 0;
  // Otherwise the packets of a flow's two directions may come in different queues.
  if (ring->is_zc && !(flags & 1))
    abort();
  snprintf(device, sizeof device, "%s", name + (ring->is_zc ? 3 : 0));
  device[strcspn(device, "@")] = 0;
  ring->caplen = caplen < LONGEST ? caplen : LONGEST;
  ring->ifindex = (int)if_nametoindex(device);
  ring->buffers = malloc((size_t)BURST * ROOM);
  // The protocol is that of no frame: packets come when the ring is enabled.
  ring->fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (ring->fd < 0 || ring->ifindex == 0 || ask_for_tags(ring->fd)) {
    free(ring->buffers);
    free(ring);
    return NULL;
  }
  // As PF_RING's descriptor, this one tells nothing of a device that goes down or away.
  // A program that the application runs inherits PF_RING's descriptor, unless fanpcap minds it.
  ring->waits = epoll_create1(0);
  struct epoll_event packets = {.events = EPOLLIN};
  epoll_ctl(ring->waits, EPOLL_CTL_ADD, ring->fd, &packets);
  int on = 1;
  setsockopt(ring->fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
  int room = 32 << 20;
  setsockopt(ring->fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
  if (flags & 1 << 3) {
    struct packet_mreq request = {.mr_ifindex = ring->ifindex, .mr_type = PACKET_MR_PROMISC};
    setsockopt(ring->fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request, sizeof request);
  }
  return ring;
}

// The socket is bound when the ring is enabled. The kernel gives it the index -1 when the device is
// removed, whatever the caller's network namespace is.
int pfring_get_bound_device_ifindex(pfring *ring, int *index) {
  struct sockaddr_ll at;
  socklen_t len = sizeof at;
  *index = ring->ifindex;
  if (ring->is_enabled && getsockname(ring->fd, (struct sockaddr *)&at, &len) == 0)
    *index = at.sll_ifindex;
  return 0;
}

// No further packet comes to any process that has the ring.
static int reject_all(pfring *ring) {
  struct sock_filter reject = BPF_STMT(BPF_RET | BPF_K, 0);
  struct sock_fprog program = {.len = 1, .filter = &reject};
  return setsockopt(ring->fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

// The place of a ring in a cluster stays, and its packets are lost, unless others may have them.
void pfring_close(pfring *ring) {
  int index;
  pfring_get_bound_device_ifindex(ring, &index);
  // The module would leave it in the cluster.
  if (ring->cluster && !ring->has_left && index != ring->ifindex)
    abort();
  // As SO_SHUTDOWN_RING, for all processes, by the ring's descriptor, if that is what it was.
  if (epoll_ctl(ring->waits, EPOLL_CTL_DEL, ring->fd, NULL) == 0)
    reject_all(ring);
  if (!ring->cluster || ring->is_relaxed)
    close(ring->fd);
  // As a library that was built without hiredis.
  if (!number_of("STANDIN_KEEPS_DESCRIPTORS", 0))
    close(ring->waits);
  free(ring->buffers);
  free(ring);
}

int pfring_remove_from_cluster(pfring *ring) {
  ring->has_left = ring->cluster != 0;
  return ring->has_left ? reject_all(ring) : -1;
}

int pfring_set_direction(pfring *ring, int direction) {
  ring->is_received_only = direction == 1;
  return 0;
}

int pfring_set_poll_watermark(pfring *ring, uint16_t watermark) {
  return ring->is_zc ? NOT_SUPPORTED : watermark == 1 ? 0 : -1;
}

int pfring_set_cluster_consumer(pfring *ring, uint16_t number, uint16_t place, int type,
                                uint32_t options) {
  int error = number_of("STANDIN_CLUSTER_ERROR", 0);
  if (number == 0 || place < PLACES)
    error = EINVAL;
  if (error) {
    errno = error;
    return -1;
  }
  ring->cluster = number;
  ring->type = type;
  ring->is_relaxed = options & 1;
  return 0;
}

int pfring_set_cluster(pfring *ring, unsigned int number, int type) {
  return pfring_set_cluster_consumer(ring, (uint16_t)number, PLACES, type, 0);
}

uint8_t pfring_get_num_rx_channels(pfring *ring) {
  (void)ring;
  return (uint8_t)number_of("STANDIN_QUEUES", 1);
}

// Joins the fan-out group before any packet comes.
static int join(pfring *ring) {
  int queues = pfring_get_num_rx_channels(ring);
  int mode = ring->type == 1 ? PACKET_FANOUT_LB : PACKET_FANOUT_HASH;
  int group = ring->cluster;
  if (ring->is_zc && queues > 1)
    group = QUEUES_OF + ring->ifindex;
  int argument = group | mode << 16;
  return group ? setsockopt(ring->fd, SOL_PACKET, PACKET_FANOUT, &argument, sizeof argument) : 0;
}

int pfring_enable_ring(pfring *ring) {
  struct sockaddr_ll address = {
      .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = ring->ifindex};
  int none = 0;
  if (reject_all(ring) || bind(ring->fd, (struct sockaddr *)&address, sizeof address) ||
      join(ring) || setsockopt(ring->fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof none))
    return -1;
  ring->is_enabled = 1;
  return 0;
}

static uint32_t captured(pfring *ring, long len) {
  return len < ring->caplen ? (uint32_t)len : ring->caplen;
}

// Takes a packet into a buffer. Returns its length on the wire, or -1.
static long take(pfring *ring, int buffer, struct timespec *stamp, int *is_sent) {
  unsigned char *data = ring->buffers + (size_t)buffer * ROOM;
  char control[256];
  struct sockaddr_ll from;
  struct iovec part = {data, ring->caplen};
  // The bytes of the packet before are gone.
  memset(data, 0xee, 64);
  for (;;) {
    struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part,
                             .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof control};
    long len = recvmsg(ring->fd, &message, MSG_TRUNC);
    if (len < 0)
      return -1;
    *is_sent = from.sll_pkttype == PACKET_OUTGOING;
    if (*is_sent && ring->is_received_only)
      continue;
    for (struct cmsghdr *it = CMSG_FIRSTHDR(&message); it; it = CMSG_NXTHDR(&message, it))
      if (it->cmsg_level == SOL_SOCKET && it->cmsg_type == SO_TIMESTAMPNS)
        memcpy(stamp, CMSG_DATA(it), sizeof *stamp);
    ring->read++;
    return len + put_tag_back(&message, data, captured(ring, len));
  }
}

int pfring_recv(pfring *ring, unsigned char **data, unsigned int room, struct header *header,
                uint8_t waits) {
  struct timespec stamp = {0};
  int is_sent;
  if (!ring->is_enabled || room || waits)
    return -1;
  long len = take(ring, 0, &stamp, &is_sent);
  if (len < 0)
    return errno == EAGAIN || errno == EINTR || errno == ENETDOWN ? 0 : -1;
  memset(header, 0, sizeof *header);
  header->seconds = stamp.tv_sec;
  header->microseconds = stamp.tv_nsec / 1000;
  header->timestamp_ns = (uint64_t)stamp.tv_sec * 1000000000 + (uint64_t)stamp.tv_nsec;
  header->caplen = captured(ring, len);
  header->len = (uint32_t)len;
  header->rx_direction = !is_sent;
  *data = ring->buffers;
  return 1;
}

int pfring_recv_burst(pfring *ring, struct info *infos, uint8_t count, uint8_t waits) {
  if (number_of("STANDIN_NO_BURSTS", 0))
    return NOT_SUPPORTED;
  if (!ring->is_enabled || waits || count > BURST)
    return -1;
  int done = 0;
  for (; done < count; done++) {
    struct timespec stamp = {0};
    int is_sent;
    long len = take(ring, done, &stamp, &is_sent);
    if (len < 0)
      break;
    infos[done] = (struct info){.data = ring->buffers + (size_t)done * ROOM,
                                .seconds = stamp.tv_sec,
                                .microseconds = stamp.tv_nsec / 1000,
                                .caplen = (uint16_t)captured(ring, len),
                                .len = (uint16_t)len};
  }
  return done || errno == EAGAIN || errno == EINTR ? done : -1;
}

int pfring_send(pfring *ring, char *frame, unsigned int len, uint8_t flush) {
  (void)flush;
  struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_ifindex = ring->ifindex};
  return (int)sendto(ring->fd, frame, len, 0, (struct sockaddr *)&to, sizeof to);
}

int pfring_stats(pfring *ring, struct counts *stat) {
  struct tpacket_stats taken = {0};
  socklen_t len = sizeof taken;
  if (getsockopt(ring->fd, SOL_PACKET, PACKET_STATISTICS, &taken, &len))
    return -1;
  // The kernel clears the counter.
  __atomic_add_fetch(&ring->dropped, taken.tp_drops, __ATOMIC_RELAXED);
  *stat = (struct counts){.recv = ring->read, .drop = ring->dropped};
  return 0;
}

int pfring_get_selectable_fd(pfring *ring) { return ring->waits; }

struct bpf_program;
int pcap_compile_nopcap(int, int, struct bpf_program *, const char *, int, uint32_t);

// fanpcap never calls this.
int pfring_set_bpf_filter(pfring *ring, char *filter) {
  return pcap_compile_nopcap((int)ring->caplen, 1, NULL, filter, 0, 0);
}
