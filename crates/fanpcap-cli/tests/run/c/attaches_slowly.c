/* Preloaded into tcpdump. A newcomer on the XDP engine that already has its packet socket waits a
   second before the device's packets are given to its group. */
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

/* Puts something into the group's descriptor store. The device has no group before it. */
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	ssize_t (*next)(int, const struct msghdr *, int) = dlsym(RTLD_NEXT, "sendmsg");

	if (has_socket) {
		has_socket = 0;
		sleep(1);
	}
	return next(fd, message, flags);
}
