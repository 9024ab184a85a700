/* A process of another user without capabilities. It tries to get access to a group, and to
   disturb the group. Usage: intruder DIRECTORY PID... Prints "got WHAT" for each attempt that
   succeeds, and "tried" after each round of all attempts. The members' pages and rendezvous
   sockets are below DIRECTORY. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum { NOBODY = 65534, NUMBERS = 64, KEPT = 900, BPF_MAP_GET_FD_BY_ID = 14, BPF_PROG_GET_FD_BY_ID = 13 };

static void got(const char *what, const char *of)
{
	printf("got %s of %s\n", what, of);
}

static void at_process(const char *text)
{
	pid_t pid = atoi(text);
	int process = (int)syscall(SYS_pidfd_open, pid, 0);
	char path[64], byte;
	struct iovec own = { &byte, 1 }, other = { (void *)0x1000, 1 };

	for (int n = 0; n < NUMBERS; n++) {
		if (syscall(SYS_pidfd_getfd, process, n, 0) >= 0)
			got("a descriptor", text);
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, n);
		if (open(path, O_RDONLY) >= 0)
			got("a file", text);
	}
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	if (open(path, O_RDWR) >= 0)
		got("the memory", text);
	if (process_vm_readv(pid, &own, 1, &other, 1, 0) >= 0 || errno == EFAULT)
		got("a byte", text);
	if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0)
		got("hold", text);
	if (kill(pid, SIGSTOP) == 0)
		got("the attention", text);
	close(process);
}

/* Connects to the rendezvous socket, sends something, and ignores the answer. */
static void at_door(const char *path)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	/* Any user may bind this name in the abstract namespace. */
	int liar = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	for (int n = 0; n < 100; n++) {
		int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);

		snprintf(name.sun_path, sizeof(name.sun_path), "%.100s", path);
		if (connect(fd, (struct sockaddr *)&name, sizeof(name)) == 0) {
			got("in at the door", path);
			send(fd, "FPDOOR_1", 8, MSG_NOSIGNAL);
		}
		close(fd);
	}
	if (liar >= KEPT) {
		close(liar);
		return;
	}
	snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "%.100s", path);
	name.sun_path[0] = 0;
	if (bind(liar, (struct sockaddr *)&name,
		 offsetof(struct sockaddr_un, sun_path) + 1 + strlen(path)) == 0)
		listen(liar, 5);
}

static void at_file(const char *path)
{
	char beside[1100];
	int fd = open(path, O_RDWR);

	if (fd >= 0)
		got("write access", path);
	if (truncate(path, 0) == 0)
		got("the content", path);
	if (chmod(path, 0666) == 0 || unlink(path) == 0 || rename(path, "/tmp/intruder") == 0)
		got("the name", path);
	fd = open(path, O_RDONLY);
	if (fd >= 0) {
		struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

		if (mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED)
			got("a writable mapping", path);
		if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
			got("a write lock", path);
		/* Read locks are allowed and do not count. The intruder keeps them. */
		lock.l_type = F_RDLCK;
		fcntl(fd, F_OFD_SETLK, &lock);
		flock(fd, LOCK_EX | LOCK_NB);
		if (fd >= KEPT)
			close(fd);
	}
	snprintf(beside, sizeof(beside), "%s/1.1", path);
	if (open(beside, O_RDWR | O_CREAT, 0666) >= 0 || mkdir(beside, 0777) == 0)
		got("a file of its own", path);
}

static void walk(const char *path)
{
	DIR *directory = opendir(path);
	struct dirent *entry;

	while (directory != NULL && (entry = readdir(directory)) != NULL) {
		char inner[1024];
		struct stat about;

		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name);
		at_file(inner);
		if (lstat(inner, &about) == 0 && S_ISDIR(about.st_mode))
			walk(inner);
		else if (S_ISSOCK(about.st_mode))
			at_door(inner);
	}
	if (directory != NULL)
		closedir(directory);
}

static void at_kernel(void)
{
	unsigned id[32] = { 0 };

	for (id[0] = 1; id[0] < 200; id[0]++) {
		if (syscall(SYS_bpf, BPF_MAP_GET_FD_BY_ID, id, sizeof(id)) >= 0)
			got("a map", "the kernel");
		if (syscall(SYS_bpf, BPF_PROG_GET_FD_BY_ID, id, sizeof(id)) >= 0)
			got("a program", "the kernel");
	}
	if (socket(AF_PACKET, SOCK_RAW, 0) >= 0)
		got("a packet socket", "the kernel");
}

static void stop(int signal)
{
	_exit(signal != SIGINT);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 3 || setgroups(0, NULL) != 0 || setresgid(NOBODY, NOBODY, NOBODY) != 0 ||
	    setresuid(NOBODY, NOBODY, NOBODY) != 0)
		return 2;
	signal(SIGINT, stop);
	for (;;) {
		for (int n = 2; n < argc; n++)
			at_process(argv[n]);
		walk(argv[1]);
		at_kernel();
		puts("tried");
		usleep(2000);
	}
}
