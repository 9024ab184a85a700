/* pcap_breakloop() by a signal handler at any moment of pcap_activate(): the first read ends with the break. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include "../wire.h"

enum { MOST = 400 };

static pcap_t *breaking;
/* Counts down the calls below. The handler runs when the counter reaches 0. */
static volatile int countdown;

static void on_signal(int signal)
{
	(void)signal;
	pcap_breakloop(breaking);
}

static void step(void)
{
	if (countdown > 0 && --countdown == 0)
		raise(SIGUSR1);
}

/* Defines wrappers of functions that both libraries call during activation. A wrapper marks a
   moment between two steps. */
#define INTERPOSED(type, name, parameters, arguments)          \
	type name parameters                                   \
	{                                                      \
		static type(*real) parameters;                 \
		if (!real)                                     \
			*(void **)&real = dlsym(RTLD_NEXT, #name); \
		step();                                        \
		return real arguments;                         \
	}

INTERPOSED(int, dladdr, (const void *at, Dl_info *info), (at, info))
INTERPOSED(int, socket, (int domain, int type, int protocol), (domain, type, protocol))
INTERPOSED(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *size),
           (fd, level, name, value, size))
INTERPOSED(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t size),
           (fd, level, name, value, size))
INTERPOSED(void *, mmap, (void *at, size_t size, int rights, int flags, int fd, off_t offset),
           (at, size, rights, flags, fd, offset))

/* Calls pcap_breakloop() at this moment of the activation, and then reads. Prints a line if the
   read does not end with the break. Returns whether the activation has this many moments. */
static int broken_at(int moment, int port)
{
	pcap_t *p = breaking = created(far, 3);
	unsigned count = 0;
	countdown = moment;
	activated(p);
	int reached = countdown == 0;
	countdown = 0;
	/* If the break comes before the reader of the system's library can be woken, this reader
	   waits for a packet before it notices the break. The reader leaves the packet in the
	   ring. */
	send_numbered(port, 0, 1);
	int rc = reached ? pcap_loop(p, 1, count_packet, (u_char *)&count) : PCAP_ERROR_BREAK;
	if (rc != PCAP_ERROR_BREAK || count != 0)
		printf("  at %d: %d, %u packets\n", moment, rc, count);
	pcap_close(p);
	return reached;
}

int main(void)
{
	int port = port_of(near), moment = 1;
	signal(SIGUSR1, on_signal);
	while (moment < MOST && broken_at(moment, port))
		moment++;
	printf("some moments: %s\n", yes(moment > 4 && moment < MOST));
	return 0;
}
