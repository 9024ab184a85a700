/* A library that is preloaded into tcpdump. tcpdump then dies at the point that DIES names.
   "reading": after it has read counters of the kernel that are not 0, which also clears the
   counters. "joining": before it enters its group. "entered": when the kernel has let it into its
   group, before the group's table shows it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void die(const char *where)
{
	const char *wanted = getenv("DIES");

	if (strcmp(program_invocation_short_name, "tcpdump") == 0 && wanted &&
	    strcmp(wanted, where) == 0)
		raise(SIGKILL);
}

int getsockopt(int fd, int level, int name, void *value, socklen_t *length)
{
	int (*next)(int, int, int, void *, socklen_t *) = dlsym(RTLD_NEXT, "getsockopt");
	int status = next(fd, level, name, value, length);

	if (level == SOL_PACKET && name == PACKET_STATISTICS && status == 0 &&
	    ((struct tpacket_stats *)value)->tp_packets > 0)
		die("reading");
	return status;
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t length)
{
	int (*next)(int, int, int, const void *, socklen_t) = dlsym(RTLD_NEXT, "setsockopt");
	int status;

	if (level != SOL_PACKET || name != PACKET_FANOUT)
		return next(fd, level, name, value, length);
	/* Waits, so that packets come before the process dies. */
	usleep(100000);
	die("joining");
	status = next(fd, level, name, value, length);
	if (status == 0) {
		usleep(100000);
		die("entered");
	}
	return status;
}
