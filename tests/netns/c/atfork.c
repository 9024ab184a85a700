/* A child closes handles in a fork handler of its program. Usage: atfork DEVICE GROUP first|last.
   The program registers the handler before its first handle or after its last handle. */
#include "scene.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

enum { LIMIT_SECONDS = 60 };

static pcap_t *plain, *member;

static void close_both(void)
{
	pcap_close(plain);
	pcap_close(member);
}

/* Waits for the child's end, at most LIMIT_SECONDS. Does not use alarm(), because signals may be
   blocked while a process forks. */
static int await_end(pid_t child)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	time_t end = time(NULL) + LIMIT_SECONDS;
	int status = -1;

	while (waitpid(child, &status, WNOHANG) == 0) {
		if (time(NULL) > end) {
			kill(child, SIGKILL);
			fail("the child", "hung");
		}
		nanosleep(&pause, NULL);
	}
	return status;
}

int main(int argc, char **argv)
{
	pcap_t *stays;
	pid_t child;
	int status;

	if (argc != 4)
		fail("usage", "atfork DEVICE GROUP first|last");
	if (strcmp(argv[3], "first") == 0)
		pthread_atfork(NULL, NULL, close_both);
	plain = opened(argv[1], 0, NULL);
	member = opened(argv[1], atoi(argv[2]), "hash");
	stays = opened(argv[1], atoi(argv[2]), "hash");
	if (strcmp(argv[3], "first") != 0)
		pthread_atfork(NULL, NULL, close_both);
	child = fork();
	if (child == 0)
		_exit(0);
	status = await_end(child);
	/* A handle that a child has closed must stay open in its parent. */
	printf("status %d, members %llu\n", status, (unsigned long long)fanout_stats(stays).members);
	pcap_close(stays);
	pcap_close(member);
	pcap_close(plain);
	return 0;
}
