/* A preloaded library. Waits SLOW_MS milliseconds before a socket gives its group a steering
   program, so that another member comes in this time. If SLOW_OPTION is set, waits before the
   packet socket's option of this number is set instead. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/if_packet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static int number(const char *variable, int otherwise)
{
	const char *text = getenv(variable);

	return text != NULL ? atoi(text) : otherwise;
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t length)
{
	int (*next)(int, int, int, const void *, socklen_t) = dlsym(RTLD_NEXT, "setsockopt");

	if (level == SOL_PACKET && name == number("SLOW_OPTION", PACKET_FANOUT_DATA))
		usleep(1000 * (useconds_t)number("SLOW_MS", 300));
	return next(fd, level, name, value, length);
}
