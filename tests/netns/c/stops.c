/* A preloaded library. The process stops itself, once, before the bpf(2) command whose number STOPS
   names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>

long syscall(long number, ...)
{
	static int has_stopped;
	long (*next)(long, long, long, long, long, long, long) = dlsym(RTLD_NEXT, "syscall");
	const char *command = getenv("STOPS");
	long args[6];
	va_list all;

	va_start(all, number);
	for (int at = 0; at < 6; at++)
		args[at] = va_arg(all, long);
	va_end(all);
	if (number == SYS_bpf && command != NULL && args[0] == atol(command) && !has_stopped) {
		has_stopped = 1;
		raise(SIGSTOP);
	}
	return next(number, args[0], args[1], args[2], args[3], args[4], args[5]);
}
