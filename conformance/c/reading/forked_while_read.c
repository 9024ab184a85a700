/* fork() while another thread waits in pcap_loop(): the child can read the handle, and the parent continues. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include "../wire.h"

enum { FRAMES = 5, CHILD_SECONDS = 100, OVERDUE = 9 };

struct loop {
	pcap_t *p;
	int count, rc;
};

static void *loop(void *argument)
{
	struct loop *loop = argument;
	loop->rc = pcap_loop(loop->p, loop->count, print_number, NULL);
	return NULL;
}

/* Makes the parent continue if the child waits for ever. */
static void overdue(int signal)
{
	(void)signal;
	kill(getppid(), SIGCONT);
	_exit(OVERDUE);
}

/* Stops the parent: both processes read the same ring, and the parent must not take packets for
   which the child waits. */
static void stop_parent(void)
{
	char path[64], line[128], state = 0;
	snprintf(path, sizeof path, "/proc/%d/status", (int)getppid());
	kill(getppid(), SIGSTOP);
	while (state != 'T') {
		FILE *status = fopen(path, "r");
		while (status && fgets(line, sizeof line, status))
			sscanf(line, "State: %c", &state);
		if (status)
			fclose(status);
		sleep_ms(1);
	}
}

static void child_looks(pcap_t *p)
{
	printf("  child, nothing there: -> %d\n", drain(p, print_number, NULL));
}

static void child_reads(pcap_t *p, int port)
{
	stop_parent();
	send_numbered(port, 70, FRAMES);
	settle(p, FRAMES);
	printf("  child:");
	int rc = pcap_dispatch(p, -1, print_number, NULL);
	printf(" -> %d [%s]\n", rc, rc < 0 ? pcap_geterr(p) : "");
	kill(getppid(), SIGCONT);
}

static void in_child(pcap_t *p, int port, int reads)
{
	int status = 0;
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		signal(SIGALRM, overdue);
		alarm(CHILD_SECONDS);
		reads ? child_reads(p, port) : child_looks(p);
		fflush(stdout);
		/* Call _exit(), not exit(): a sanitizer would search for the reading thread, which does not exist
		   in the child. */
		_exit(0);
	}
	waitpid(child, &status, 0);
	printf("  child ended: %d\n", status);
}

static void fork_while_read(int version, int port, int reads)
{
	pthread_t thread;
	struct loop waiting = { opened(far, version), reads ? -1 : FRAMES, 0 };
	printf("version %d\n", version);
	pthread_create(&thread, NULL, loop, &waiting);
	sleep_ms(settled());
	in_child(waiting.p, port, reads);
	/* The processes do not share the position in the ring. So the parent does not read the child's
	   packets, nor any later packet. */
	if (reads)
		pcap_breakloop(waiting.p);
	else
		send_numbered(port, 0, FRAMES);
	pthread_join(thread, NULL);
	printf("  parent: -> %d [%s]\n", waiting.rc, waiting.rc == PCAP_ERROR ? pcap_geterr(waiting.p) : "");
	pcap_close(waiting.p);
}

int main(void)
{
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		fork_while_read(version, port, 0);
		fork_while_read(version, port, 1);
	}
	return 0;
}
