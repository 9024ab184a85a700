/* A library that is preloaded into tcpdump. A newcomer on the XDP engine that already has its
   packet socket waits a second before its group gets the device's packets. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int has_socket;

int socket(int domain, int type, int protocol)
{
	int (*next)(int, int, int) = dlsym(RTLD_NEXT, "socket");

	if (domain == AF_PACKET && strcmp(program_invocation_short_name, "tcpdump") == 0)
		has_socket = 1;
	return next(domain, type, protocol);
}

/* Our library calls sendmsg() to put a descriptor into the group's descriptor store. Before
   that, the device gives no packets to the group. */
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	ssize_t (*next)(int, const struct msghdr *, int) = dlsym(RTLD_NEXT, "sendmsg");

	if (has_socket) {
		has_socket = 0;
		sleep(1);
	}
	return next(fd, message, flags);
}
