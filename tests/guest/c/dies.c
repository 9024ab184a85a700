/* Runs a program and kills it after the nth system call that changes a device or a journal. Usage:
   dies N PROGRAM [ARG...]. Exits with 0 if it has killed the program, with 3 if the program has
   ended before. */
#define _GNU_SOURCE
#include <linux/ethtool.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KILLED = 0, FAILED = 2, ENDED = 3 };

/* The offset in struct ifreq on x86-64. */
enum { IFR_DATA = 16 };

static void fail(const char *call)
{
	perror(call);
	exit(FAILED);
}

/* Whether an ethtool command changes a setting. */
static int sets(pid_t pid, uint64_t ifreq)
{
	long data = ptrace(PTRACE_PEEKDATA, pid, ifreq + IFR_DATA, 0);

	switch ((uint32_t)ptrace(PTRACE_PEEKDATA, pid, data, 0)) {
	case ETHTOOL_SCHANNELS:
	case ETHTOOL_SFEATURES:
	case ETHTOOL_SFLAGS:
	case ETHTOOL_SPAUSEPARAM:
	case ETHTOOL_SRINGPARAM:
	case ETHTOOL_SRSSH:
	case ETHTOOL_SRXFH:
	case ETHTOOL_SRXFHINDIR:
		return 1;
	}
	return 0;
}

/* Devices are changed by ioctl() and write(). A journal is written to a new file, which is then
   renamed. arm64 has no rename(2). */
#ifndef SYS_rename
#define SYS_rename SYS_renameat
#endif
static const int calls[] = { SYS_ioctl, SYS_write, SYS_rename, SYS_renameat, SYS_renameat2 };

enum { CALLS = sizeof calls / sizeof calls[0] };

/* Whether a call from `calls` changes a device or a journal, judged by its arguments. */
static int changes(pid_t pid, uint64_t number, const __uint64_t *args)
{
	switch (number) {
	case SYS_write:
		return args[0] > STDERR_FILENO;
	case SYS_ioctl:
		return args[1] == SIOCETHTOOL && sets(pid, args[2]);
	}
	return 1;
}

/* Makes the calling process stop only at these calls. To stop at all calls would take too long,
   because the guest is emulated. */
static void stop_at_calls(void)
{
	struct sock_filter filter[CALLS + 3] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	};
	struct sock_fprog program = { CALLS + 3, filter };

	for (int i = 0; i < CALLS; i++)
		filter[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i],
							     CALLS - i, 0);
	filter[CALLS + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	filter[CALLS + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		_exit(FAILED);
}

/* Continues to the next entry into one of the calls, or with PTRACE_SYSCALL to the return from the
   call. */
static void go_on(pid_t pid, int request)
{
	int status, signal = 0;

	for (;;) {
		if (ptrace(request, pid, 0, signal) != 0)
			fail("ptrace");
		if (waitpid(pid, &status, 0) < 0)
			fail("waitpid");
		if (!WIFSTOPPED(status))
			exit(ENDED);
		signal = WSTOPSIG(status);
		if (signal == (SIGTRAP | 0x80) || status >> 8 == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8))
			return;
		if (status >> 16 != 0)
			signal = 0;
	}
}

static pid_t start(char **argv)
{
	const long options =
		PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC | PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		stop_at_calls();
		execv(argv[0], argv);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status))
		fail("starting the program");
	if (ptrace(PTRACE_SETOPTIONS, pid, 0, options) != 0)
		fail("PTRACE_SETOPTIONS");
	return pid;
}

int main(int argc, char **argv)
{
	struct __ptrace_syscall_info call;
	long left = argc > 2 ? atol(argv[1]) : 0;
	pid_t pid;

	if (left < 1)
		return FAILED;
	pid = start(argv + 2);
	while (left > 0) {
		go_on(pid, PTRACE_CONT);
		if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof call, &call) < 0)
			fail("PTRACE_GET_SYSCALL_INFO");
		if (!changes(pid, call.seccomp.nr, call.seccomp.args))
			continue;
		go_on(pid, PTRACE_SYSCALL);
		left--;
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return KILLED;
}
