/* Parent and child with one handle each: one was opened before fork(), the other after fork(). */
#include <sys/wait.h>
#include "../wire.h"

static void read_three(const char *who, pcap_t *p)
{
	settle(p, 3);
	printf("%s:", who);
	printf(" -> %d\n", drain(p, print_number, NULL));
	pcap_close(p);
}

int main(void)
{
	int port = port_of(near);
	pcap_t *before = opened(near, 3);
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		alarm(LIMIT_SECONDS);
		pcap_t *after = opened(far, 3);
		send_numbered(port, 0, 3);
		read_three("child", after);
		exit(0);
	}
	int status;
	waitpid(child, &status, 0);
	printf("ended %d\n", status);
	read_three("parent", before);
	return 0;
}
