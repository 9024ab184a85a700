/* The system calls that the tracer knows. For each call: its name, whether it can fail for lack
   of descriptors, whether signals interrupt it, and whether the tracer leaves it alone. */
#ifndef calls_h
#define calls_h

#include <stddef.h>
#include <sys/syscall.h>

enum {
	/* The call makes a descriptor. */
	OPENS = 1,
	/* A signal may interrupt the call (signal(7)). */
	WAITS = 2,
	/* The call's first or second argument is a path, which is part of the printed name. */
	PATH_FIRST = 4,
	PATH_SECOND = 8,
	/* The call's second and third argument, level and option, are part of the printed name. */
	OPTION = 16,
	/* The call's second argument, a request or command, is part of the printed name. */
	REQUEST = 32,
	/* The tracer does not make the call fail: either it never fails as the library uses it, or
	   the library could undo nothing after the failure.
	 */
	LEFT_ALONE = 64,
};

struct call {
	long number;
	const char *name;
	int traits;
};

static const struct call calls[] = {
	{ SYS_socket, "socket", OPENS },
	{ SYS_openat, "openat", OPENS | WAITS | PATH_SECOND },
	{ SYS_eventfd2, "eventfd", OPENS },
	{ SYS_epoll_create1, "epoll_create", OPENS },
	{ SYS_dup, "dup", OPENS },
	{ SYS_memfd_create, "memfd_create", OPENS },
	{ SYS_bind, "bind", 0 },
	{ SYS_connect, "connect", WAITS },
	{ SYS_setsockopt, "setsockopt", OPTION },
	{ SYS_getsockopt, "getsockopt", OPTION },
	{ SYS_getsockname, "getsockname", 0 },
	{ SYS_sendto, "send", WAITS },
	{ SYS_sendmsg, "sendmsg", WAITS },
	{ SYS_recvfrom, "recv", WAITS },
	{ SYS_recvmsg, "recvmsg", WAITS },
	{ SYS_read, "read", WAITS },
	{ SYS_write, "write", WAITS },
	{ SYS_pread64, "pread", WAITS },
	{ SYS_pwrite64, "pwrite", WAITS },
	{ SYS_ppoll, "ppoll", WAITS },
	{ SYS_epoll_pwait, "epoll_wait", WAITS },
	{ SYS_epoll_ctl, "epoll_ctl", 0 },
	{ SYS_ioctl, "ioctl", REQUEST },
	{ SYS_fcntl, "fcntl", REQUEST },
	{ SYS_flock, "flock", WAITS },
	{ SYS_mmap, "mmap", 0 },
	{ SYS_mprotect, "mprotect", 0 },
	{ SYS_fstat, "fstat", 0 },
	{ SYS_newfstatat, "fstatat", PATH_SECOND },
	{ SYS_statx, "statx", PATH_SECOND },
	{ SYS_faccessat, "faccessat", PATH_SECOND },
	{ SYS_readlinkat, "readlinkat", PATH_SECOND },
	{ SYS_mkdirat, "mkdirat", PATH_SECOND },
	{ SYS_unlinkat, "unlinkat", PATH_SECOND },
	{ SYS_linkat, "linkat", PATH_SECOND },
	{ SYS_getdents64, "getdents", 0 },
	{ SYS_lseek, "lseek", 0 },
	{ SYS_uname, "uname", 0 },
#ifdef SYS_open
	{ SYS_open, "open", OPENS | WAITS | PATH_FIRST },
	{ SYS_poll, "poll", WAITS },
	{ SYS_epoll_wait, "epoll_wait", WAITS },
	{ SYS_access, "access", PATH_FIRST },
	{ SYS_stat, "stat", PATH_FIRST },
	{ SYS_readlink, "readlink", PATH_FIRST },
	{ SYS_mkdir, "mkdir", PATH_FIRST },
	{ SYS_rmdir, "rmdir", PATH_FIRST },
	{ SYS_unlink, "unlink", PATH_FIRST },
#endif
	/* close() and munmap() free the descriptor or memory, whatever they return. */
	{ SYS_close, "close", LEFT_ALONE },
	{ SYS_munmap, "munmap", LEFT_ALONE },
	{ SYS_futex, "futex", LEFT_ALONE },
	{ SYS_rt_sigprocmask, "rt_sigprocmask", LEFT_ALONE },
	{ SYS_rt_sigaction, "rt_sigaction", LEFT_ALONE },
	{ SYS_rt_sigreturn, "rt_sigreturn", LEFT_ALONE },
	{ SYS_restart_syscall, "restart_syscall", LEFT_ALONE },
	{ SYS_clock_gettime, "clock_gettime", LEFT_ALONE },
	{ SYS_sched_yield, "sched_yield", LEFT_ALONE },
	{ SYS_getpid, "getpid", LEFT_ALONE },
	{ SYS_gettid, "gettid", LEFT_ALONE },
	{ SYS_prctl, "prctl", LEFT_ALONE },
	{ SYS_nanosleep, "nanosleep", LEFT_ALONE },
	{ SYS_clock_nanosleep, "clock_nanosleep", LEFT_ALONE },
	{ SYS_exit_group, "exit_group", LEFT_ALONE },
	/* The calls of the memory allocator, because these tests do not cover a lack of memory. */
	{ SYS_brk, "brk", LEFT_ALONE },
	{ SYS_madvise, "madvise", LEFT_ALONE },
	{ SYS_getrandom, "getrandom", LEFT_ALONE },
};

static inline const struct call *call_of(long number)
{
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		if (calls[i].number == number)
			return &calls[i];
	}
	return NULL;
}

#endif
