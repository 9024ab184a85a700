/* Children close a plain handle. They are forked while another thread asks for counters. Usage:
   forks DEVICE GROUP. */
#include "scene.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { CHILDREN = 20, LIMIT_SECONDS = 60 };

static atomic_ulong asked;
static atomic_int stop;

static void *ask(void *member)
{
	while (!atomic_load(&stop)) {
		(void)fanout_stats(member);
		atomic_fetch_add(&asked, 1);
	}
	return NULL;
}

static int close_in_child(pcap_t *plain)
{
	int status = -1;
	pid_t child = fork();

	if (child == 0) {
		alarm(LIMIT_SECONDS);
		pcap_close(plain);
		_exit(0);
	}
	waitpid(child, &status, 0);
	return status;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	pcap_t *plain, *member;

	if (argc != 3)
		fail("usage", "forks DEVICE GROUP");
	plain = opened(argv[1], 0, NULL);
	member = opened(argv[1], atoi(argv[2]), "hash");
	pthread_create(&thread, NULL, ask, member);
	for (int i = 0; i < CHILDREN; i++) {
		unsigned long before = atomic_load(&asked);

		/* Waits until the other thread has asked again, so that the fork comes while it
		   asks for the next time. */
		while (atomic_load(&asked) == before)
			sched_yield();
		if (close_in_child(plain) != 0) {
			printf("child %d hung\n", i);
			return 1;
		}
	}
	atomic_store(&stop, 1);
	pthread_join(thread, NULL);
	pcap_close(member);
	pcap_close(plain);
	puts("all children ended");
	return 0;
}
