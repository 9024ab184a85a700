/* Runs a program and makes its system calls fail when the program requests a failure. Usage:
   tracer PROGRAM ARGUMENT... The tracer uses ptrace(2), so it catches a call whoever makes it:
   our library, the system's library, the standard library, or libc itself. After a request, the
   program stops at each system call until the requested failure. At other times a filter of
   seccomp(2) stops the program only at its requests. */
#define _GNU_SOURCE
#include "calls.h"
#include "fault.h"

#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/filter.h>
#include <linux/ptrace.h>
#include <linux/seccomp.h>

#define OPTIONS (PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | \
		 PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL | \
		 PTRACE_O_TRACESECCOMP)

/* The offset of the low half of a call's first argument. The low half comes first in memory on
   both architectures on which this test runs. */
#define REQUEST_AT offsetof(struct seccomp_data, args)

/* The current request: the thread that made it, the address of its struct fault, and a copy of the
   struct. */
static pid_t asking;
static unsigned long asked_at;
static struct fault fault;
/* Whether the thread `asking` is inside the call that is to fail. */
static int failing;

static void fail(const char *call)
{
	fprintf(stderr, "tracer: %s: %s\n", call, strerror(errno));
	exit(2);
}

static void copy_in(pid_t thread, unsigned long from, void *to, size_t size)
{
	struct iovec local = { to, size }, remote = { (void *)from, size };

	if (process_vm_readv(thread, &local, 1, &remote, 1, 0) != (ssize_t)size)
		fail("process_vm_readv");
}

static void copy_out(pid_t thread, void *from, unsigned long to, size_t size)
{
	struct iovec local = { from, size }, remote = { (void *)to, size };

	if (process_vm_writev(thread, &local, 1, &remote, 1, 0) != (ssize_t)size)
		fail("process_vm_writev");
}

/* Copies a path byte by byte, because the path may end just before memory that can't be read. */
static void copy_path(pid_t thread, unsigned long from, char *to, size_t size)
{
	size_t len = 0;

	while (len + 1 < size && from != 0) {
		struct iovec local = { &to[len], 1 }, remote = { (void *)(from + len), 1 };

		if (process_vm_readv(thread, &local, 1, &remote, 1, 0) != 1 || to[len] == '\0')
			break;
		len++;
	}
	to[len] = '\0';
}

static void describe(pid_t thread, const struct ptrace_syscall_info *info)
{
	const struct call *call = call_of((long)info->entry.nr);
	const __u64 *args = info->entry.args;
	int traits = call != NULL ? call->traits : 0;
	char path[96];

	if (call == NULL) {
		snprintf(fault.call, sizeof(fault.call), "call-%llu", info->entry.nr);
	} else if (traits & (PATH_FIRST | PATH_SECOND)) {
		copy_path(thread, args[traits & PATH_FIRST ? 0 : 1], path, sizeof(path));
		snprintf(fault.call, sizeof(fault.call), path[0] != '\0' ? "%s(%s)" : "%s", call->name, path);
	} else if (traits & OPTION) {
		snprintf(fault.call, sizeof(fault.call), "%s(%llu,%llu)", call->name, args[1], args[2]);
	} else if (traits & REQUEST) {
		snprintf(fault.call, sizeof(fault.call), "%s(%#llx)", call->name, args[1]);
	} else {
		snprintf(fault.call, sizeof(fault.call), "%s", call->name);
	}
}

static int may_fail(const struct ptrace_syscall_info *info)
{
	const struct call *call = call_of((long)info->entry.nr);
	int traits = call != NULL ? call->traits : 0;

	if (traits & LEFT_ALONE)
		return 0;
	if (info->entry.nr == SYS_mmap && info->entry.args[3] & MAP_ANONYMOUS)
		return 0;
	if (fault.pass == INTERRUPTED)
		return traits & WAITS;
	return fault.pass != EXHAUSTED || traits & OPENS;
}

static int error_of(const struct ptrace_syscall_info *info)
{
	const struct call *call = call_of((long)info->entry.nr);

	if (fault.pass == INTERRUPTED)
		return EINTR;
	if (fault.pass == DENIED)
		return call != NULL && call->traits & (PATH_FIRST | PATH_SECOND) ? EACCES : EPERM;
	return call != NULL && call->traits & OPENS ? EMFILE : ENOMEM;
}

static void set_word(pid_t thread, int set, void *value, size_t size)
{
	struct iovec words = { value, size };

	if (ptrace(PTRACE_SETREGSET, thread, (void *)(long)set, &words) != 0)
		fail("PTRACE_SETREGSET");
}

/* Makes the kernel skip the thread's call. The tracer sets the call's result later, when the
   call returns. */
static void skip_call(pid_t thread)
{
#if defined(__aarch64__)
	int none = -1;

	set_word(thread, NT_ARM_SYSTEM_CALL, &none, sizeof(none));
#else
	struct user_regs_struct registers;
	struct iovec words = { &registers, sizeof(registers) };

	if (ptrace(PTRACE_GETREGSET, thread, (void *)NT_PRSTATUS, &words) != 0)
		fail("PTRACE_GETREGSET");
	registers.orig_rax = (unsigned long long)-1;
	set_word(thread, NT_PRSTATUS, &registers, sizeof(registers));
#endif
}

static void return_error(pid_t thread, long error)
{
	struct user_regs_struct registers;
	struct iovec words = { &registers, sizeof(registers) };

	if (ptrace(PTRACE_GETREGSET, thread, (void *)NT_PRSTATUS, &words) != 0)
		fail("PTRACE_GETREGSET");
#if defined(__aarch64__)
	registers.regs[0] = (unsigned long long)-error;
#else
	registers.rax = (unsigned long long)-error;
#endif
	set_word(thread, NT_PRSTATUS, &registers, sizeof(registers));
}

static int is_to_fail(const struct ptrace_syscall_info *info)
{
	if (!may_fail(info))
		return 0;
	if (fault.happened)
		return fault.pass == EXHAUSTED;
	return fault.nth > 0 && --fault.nth == 0;
}

static void at_request(pid_t thread, const struct ptrace_syscall_info *info)
{
	asking = 0;
	if (info->seccomp.args[0] == FAULT_ARM) {
		asking = thread;
		asked_at = info->seccomp.args[1];
		copy_in(thread, asked_at, &fault, sizeof(fault));
	}
}

static void at_entry(pid_t thread, const struct ptrace_syscall_info *info)
{
	if (thread != asking || !is_to_fail(info))
		return;
	if (!fault.happened) {
		describe(thread, info);
		fault.happened = 1;
		fault.error = error_of(info);
		copy_out(thread, &fault, asked_at, sizeof(fault));
	}
	failing = 1;
	skip_call(thread);
}

/* Whether the thread's current call or one of its next calls is to fail. */
static int is_watched(pid_t thread)
{
	int is_to_come = fault.happened ? fault.pass == EXHAUSTED : fault.nth > 0;

	return thread == asking && (failing || is_to_come);
}

static void at_stop(pid_t thread)
{
	struct ptrace_syscall_info info;

	if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof(info), &info) < 0)
		fail("PTRACE_GET_SYSCALL_INFO");
	if (info.op == PTRACE_SYSCALL_INFO_SECCOMP) {
		at_request(thread, &info);
	} else if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
		at_entry(thread, &info);
	} else if (info.op == PTRACE_SYSCALL_INFO_EXIT && thread == asking && failing) {
		return_error(thread, fault.error);
		failing = 0;
	}
}

/* The signal that a stopped thread must get: the signal that stopped the thread, or 0 if the
   tracer caused the stop. */
static int signal_of(int status)
{
	int signal = WSTOPSIG(status);

	if (signal == (SIGTRAP | 0x80) || status >> 16 != 0 || signal == SIGSTOP)
		return 0;
	return signal;
}

static int trace(pid_t program)
{
	for (;;) {
		int status;
		pid_t thread = waitpid(-1, &status, __WALL);

		if (thread < 0)
			fail("waitpid");
		if (thread == program && WIFEXITED(status))
			return WEXITSTATUS(status);
		if (thread == program && WIFSIGNALED(status)) {
			printf("the program was ended by signal %d in %s\n", WTERMSIG(status), fault.call);
			return 1;
		}
		if (!WIFSTOPPED(status))
			continue;
		if (WSTOPSIG(status) == (SIGTRAP | 0x80) || status >> 16 == PTRACE_EVENT_SECCOMP)
			at_stop(thread);
		/* Ignores ESRCH, because the thread may have been killed after its stop. */
		if (ptrace(is_watched(thread) ? PTRACE_SYSCALL : PTRACE_CONT, thread, 0,
			   (void *)(long)signal_of(status)) != 0 && errno != ESRCH)
			fail("PTRACE_CONT");
	}
}

/* Installs the filter that stops this program, and its children, at their requests for a failure.
   */
static void stop_at_requests(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, REQUEST_AT),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FAULT_ARM, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FAULT_DISARM, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
	};
	const struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0)
		fail("PR_SET_SECCOMP");
}

int main(int argc, char **argv)
{
	pid_t program;
	int status;

	if (argc < 2) {
		fputs("usage: tracer PROGRAM ARGUMENT...\n", stderr);
		return 2;
	}
	program = fork();
	if (program == 0) {
		if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0)
			fail("PTRACE_TRACEME");
		stop_at_requests();
		raise(SIGSTOP);
		execv(argv[1], argv + 1);
		fail(argv[1]);
	}
	if (program < 0 || waitpid(program, &status, 0) != program || !WIFSTOPPED(status))
		fail("waitpid");
	if (ptrace(PTRACE_SETOPTIONS, program, 0, OPTIONS) != 0)
		fail("PTRACE_SETOPTIONS");
	if (ptrace(PTRACE_CONT, program, 0, 0) != 0)
		fail("PTRACE_CONT");
	return trace(program);
}
