/* Preloaded: waits before a socket gives its group a steering program, so that another comes meanwhile. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/if_packet.h>
#include <sys/socket.h>
#include <unistd.h>

int setsockopt(int fd, int level, int name, const void *value, socklen_t length)
{
	int (*next)(int, int, int, const void *, socklen_t) = dlsym(RTLD_NEXT, "setsockopt");

	if (level == SOL_PACKET && name == PACKET_FANOUT_DATA)
		usleep(300000);
	return next(fd, level, name, value, length);
}
