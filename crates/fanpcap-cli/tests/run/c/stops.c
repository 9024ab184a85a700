/* A library that is preloaded into tcpdump. tcpdump then stops itself each time that it has
   taken a write lock. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>

int fcntl(int fd, int command, ...)
{
	int (*next)(int, int, void *) = dlsym(RTLD_NEXT, "fcntl");
	va_list arguments;
	void *argument;
	int result;

	va_start(arguments, command);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	result = next(fd, command, argument);
	if (result == 0 && command == F_OFD_SETLK && ((struct flock *)argument)->l_type == F_WRLCK)
		raise(SIGSTOP);
	return result;
}
