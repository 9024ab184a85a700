/* A stand-in for netmap's kernel module, for a process that is started with this object in
   LD_PRELOAD: it answers the calls of that process on /dev/netmap as net/netmap.h publishes them for
   version 14. Devices have one receive ring, whose packets come by a packet socket. So the host
   gets them, too. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include "tag.h"

enum {
  API = 14,
  REGISTER = 1,
  PORT_INFO = 2,
  ONE_RING = 4,
  EXCLUSIVE = 0x800,
  RECEIVE_ONLY = 0x2000,
  TIMESTAMP = 2,
  MORE_FRAGMENTS = 0x20
};

struct request {
  uint16_t version, kind;
  uint32_t reserved;
  char name[64];
  uint64_t options, body;
};

struct info {
  uint64_t memory_len;
  uint32_t tx_slots, rx_slots;
  uint16_t tx_rings, rx_rings, host_tx_rings, host_rx_rings, memory, pad[3];
};

struct registration {
  uint64_t offset, memory_len;
  uint32_t tx_slots, rx_slots;
  uint16_t tx_rings, rx_rings, host_tx_rings, host_rx_rings, memory, ring;
  uint32_t mode, extra_buffers, pad;
  uint64_t flags;
};

#define CONTROL _IOWR('i', 151, struct request)
#define SYNC_RECEIVED _IO('i', 149)

struct interface {
  char name[16];
  uint32_t version, flags, tx_rings, rx_rings, first_extra, host_tx_rings, host_rx_rings, spare[3];
  int64_t rings[4];
};

struct slot {
  uint32_t buffer;
  uint16_t len, flags;
  uint64_t pointer;
};

enum { SLOTS = 1024, BUFFER_LEN = 2048, FIRST_BUFFER = 2, LONGEST = 65600 };

struct ring {
  int64_t buffers;
  uint32_t slots, buffer_len;
  uint16_t number, direction;
  uint32_t head, current, tail, flags;
  struct timeval stamp;
  unsigned char rest[200];
  struct slot slot[SLOTS];
};

/* The module maps more memory than the parts of one device, so they don't begin at 0. The two rings
   that transmit come first. */
struct memory {
  unsigned char others[4096];
  struct interface interface;
  _Alignas(64) struct ring ring;
  unsigned char buffers[FIRST_BUFFER + SLOTS][BUFFER_LEN];
};

_Static_assert(sizeof(struct request) == 88, "struct nmreq_header");
_Static_assert(sizeof(struct info) == 32, "struct nmreq_port_info_get");
_Static_assert(sizeof(struct registration) == 56, "struct nmreq_register");
_Static_assert(offsetof(struct interface, rings) == 56, "struct netmap_if");
_Static_assert(offsetof(struct ring, stamp) == 40, "struct netmap_ring");
_Static_assert(offsetof(struct ring, slot) == 256, "struct netmap_ring");

/* A descriptor of /dev/netmap; one that has no ring yet has no memory. */
struct port {
  struct memory *memory;
  int socket;
  /* The first slot that the process had not given back at its last call. */
  uint32_t taken;
  /* A packet of which `put` bytes are in the ring. */
  long len, put;
  unsigned char packet[LONGEST + TAG];
};

enum { DESCRIPTORS = 4096 };
static struct port *ports[DESCRIPTORS];

static struct port *port_of(int fd) { return fd >= 0 && fd < DESCRIPTORS ? ports[fd] : NULL; }

static struct port *with_ring(int fd) {
  struct port *port = port_of(fd);
  return port && port->memory ? port : NULL;
}

/* The C library's function of the same name. */
#define NEXT(function) ((__typeof__(function) *)dlsym(RTLD_NEXT, #function))

int open64(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = va_arg(rest, mode_t);
  va_end(rest);
  if (strcmp(path, "/dev/netmap"))
    return NEXT(open64)(path, flags, mode);
  int fd = memfd_create("netmap", MFD_CLOEXEC);
  if (fd >= DESCRIPTORS)
    abort();
  if (fd >= 0)
    ports[fd] = calloc(1, sizeof(struct port));
  return fd;
}

int close(int fd) {
  struct port *port = port_of(fd);
  if (port) {
    ports[fd] = NULL;
    if (port->memory) {
      munmap(port->memory, sizeof *port->memory);
      NEXT(close)(port->socket);
    }
    free(port);
  }
  return NEXT(close)(fd);
}

static int failed(int error) {
  errno = error;
  return -1;
}

/* A socket that gets the packets that a device receives from now on. */
static int receiving(int ifindex) {
  struct sockaddr_ll address = {
      .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = ifindex};
  int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1, room = 32 << 20;
  if (fd < 0 || ask_for_tags(fd) ||
      setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) ||
      setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) ||
      bind(fd, (struct sockaddr *)&address, sizeof address))
    return -1;
  return fd;
}

static struct memory *laid_out(int fd) {
  if (ftruncate(fd, sizeof(struct memory)))
    return NULL;
  int protection = PROT_READ | PROT_WRITE;
  struct memory *all = mmap(NULL, sizeof *all, protection, MAP_SHARED, fd, 0);
  if (all == MAP_FAILED)
    return NULL;
  struct interface *interface = &all->interface;
  struct ring *ring = &all->ring;
  interface->version = API;
  interface->tx_rings = interface->rx_rings = 1;
  interface->host_tx_rings = interface->host_rx_rings = 1;
  // After the two that transmit. The others are not this descriptor's.
  interface->rings[2] = (char *)ring - (char *)interface;
  ring->buffers = (char *)all->buffers - (char *)ring;
  ring->slots = SLOTS;
  ring->buffer_len = BUFFER_LEN;
  for (uint32_t at = 0; at < SLOTS; at++)
    ring->slot[at].buffer = FIRST_BUFFER + at;
  return all;
}

static int enter(int fd, struct port *port, int ifindex, struct registration *asked) {
  if (port->memory || asked->mode != ONE_RING || asked->ring != 0 ||
      asked->flags != (EXCLUSIVE | RECEIVE_ONLY))
    return failed(EINVAL);
  port->socket = receiving(ifindex);
  port->memory = port->socket < 0 ? NULL : laid_out(fd);
  if (!port->memory)
    return -1;
  asked->offset = offsetof(struct memory, interface);
  asked->memory_len = sizeof(struct memory);
  return 0;
}

static int control(int fd, struct port *port, struct request *request) {
  int ifindex = (int)if_nametoindex(request->name);
  if (request->version != API)
    return failed(EINVAL);
  if (ifindex == 0)
    return failed(ENXIO);
  void *body = (void *)(uintptr_t)request->body;
  switch (request->kind) {
  case PORT_INFO:
    *(struct info *)body = (struct info){.memory_len = sizeof(struct memory),
                                         .rx_slots = SLOTS,
                                         .tx_rings = 1,
                                         .rx_rings = 1,
                                         .host_tx_rings = 1,
                                         .host_rx_rings = 1};
    return 0;
  case REGISTER:
    return enter(fd, port, ifindex, body);
  default:
    return failed(EINVAL);
  }
}

/* Takes the next packet from the socket. Returns whether there is one. */
static int take(struct port *port) {
  char beside[256];
  struct iovec part = {port->packet, LONGEST};
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = beside, .msg_controllen = sizeof beside};
  long len = recvmsg(port->socket, &message, 0);
  port->put = 0;
  port->len = len < 0 ? 0 : len + put_tag_back(&message, port->packet, len);
  return port->len > 0;
}

static int is_gone(const struct port *port) {
  struct sockaddr_ll address;
  socklen_t len = sizeof address;
  return getsockname(port->socket, (struct sockaddr *)&address, &len) || address.sll_ifindex == -1;
}

static int has_packets(const struct port *port) {
  return port->memory->ring.current != port->memory->ring.tail;
}

/* Fills the slots that the process has given back. One slot stays free, so that a full ring differs
   from an empty one. */
static int synchronize(struct port *port) {
  struct ring *ring = &port->memory->ring;
  uint32_t full = (ring->tail - port->taken) % SLOTS, given = (ring->head - port->taken) % SLOTS;
  if (ring->head >= SLOTS || ring->current != ring->head || given > full)
    return failed(EINVAL);
  port->taken = ring->head;
  uint32_t next = (ring->tail + 1) % SLOTS;
  while (next != ring->head && (port->put < port->len || take(port))) {
    struct slot *slot = &ring->slot[ring->tail];
    long left = port->len - port->put;
    slot->len = (uint16_t)(left < BUFFER_LEN ? left : BUFFER_LEN);
    slot->flags = left > BUFFER_LEN ? MORE_FRAGMENTS : 0;
    memcpy(port->memory->buffers[slot->buffer], port->packet + port->put, slot->len);
    port->put += slot->len;
    ring->tail = next;
    next = (next + 1) % SLOTS;
  }
  if (ring->flags & TIMESTAMP)
    gettimeofday(&ring->stamp, NULL);
  return is_gone(port) ? failed(ENXIO) : 0;
}

int ioctl(int fd, unsigned long kind, ...) {
  va_list rest;
  va_start(rest, kind);
  void *argument = va_arg(rest, void *);
  va_end(rest);
  struct port *port = port_of(fd);
  if (!port)
    return NEXT(ioctl)(fd, kind, argument);
  if (kind == CONTROL)
    return control(fd, port, argument);
  return kind == SYNC_RECEIVED && with_ring(fd) ? synchronize(port) : failed(EINVAL);
}

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *limit, const sigset_t *mask) {
  static const struct timespec none;
  struct pollfd below[count + 1];
  for (nfds_t at = 0; at < count; at++) {
    struct port *port = with_ring(fds[at].fd);
    below[at] = fds[at];
    if (port) {
      below[at].fd = port->socket;
      if (synchronize(port) || has_packets(port))
        limit = &none;
    }
  }
  int done = NEXT(ppoll)(below, count, limit, mask);
  for (nfds_t at = 0; done >= 0 && at < count; at++) {
    struct port *port = with_ring(fds[at].fd);
    fds[at].revents = below[at].revents;
    if (port)
      fds[at].revents = synchronize(port) ? POLLERR : has_packets(port) ? POLLIN : 0;
  }
  if (done < 0)
    return done;
  done = 0;
  for (nfds_t at = 0; at < count; at++)
    done += fds[at].revents != 0;
  return done;
}
