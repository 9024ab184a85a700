/* A handle that was opened before fork(): the child reads and closes it, and the parent continues. */
#include <sys/wait.h>
#include "../wire.h"

static void in_child(pcap_t *p, int port)
{
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		alarm(LIMIT_SECONDS);
		send_numbered(port, 0, 5);
		settle(p, 5);
		printf("  child:");
		printf(" -> %d\n", pcap_loop(p, 5, print_number, NULL) == 0 ? 5 : -1);
		print_stats(p);
		pcap_close(p);
		exit(7);
	}
	int status = 0;
	waitpid(child, &status, 0);
	printf("  child ended: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

int main(void)
{
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		printf("version %d\n", version);
		pcap_t *p = opened(far, version);
		in_child(p, port);
		/* Parent and child share the ring but not the position in it, and the blocks that
		   the child has read belong to the kernel again. So the parent reads with a new
		   handle. */
		pcap_t *fresh = opened(far, version);
		pcap_close(p);
		send_numbered(port, 10, 3);
		settle(fresh, 3);
		printf("  parent:");
		printf(" -> %d\n", drain(fresh, print_number, NULL));
		pcap_close(fresh);
	}
	return 0;
}
