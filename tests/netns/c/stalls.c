/* A preloaded library. A process that opens a packet socket creates the file that STALLS names,
   and waits until the file is removed. When the process waits, its handle has claimed its
   device, but has joined no group. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int socket(int domain, int type, int protocol)
{
	int (*next)(int, int, int) = dlsym(RTLD_NEXT, "socket");
	const char *path = getenv("STALLS");

	if (domain == AF_PACKET && path != NULL) {
		close(open(path, O_CREAT | O_WRONLY, 0600));
		while (access(path, F_OK) == 0)
			usleep(1000);
	}
	return next(domain, type, protocol);
}
