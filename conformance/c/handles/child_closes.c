/* A child closes a handle of its parent, or activates a handle that its parent created: both processes continue. */
#include <sys/wait.h>
#include "../wire.h"

static void wait_for(pid_t child)
{
	int status = 0;
	waitpid(child, &status, 0);
	printf("  child ended: %d\n", status);
}

static void read_some(const char *who, pcap_t *p, int port, unsigned first, unsigned expected)
{
	send_numbered(port, first, 3);
	settle(p, expected);
	printf("  %s:", who);
	printf(" -> %d\n", drain(p, print_number, NULL));
}

static void close_in_child(pcap_t *p)
{
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		pcap_close(p);
		_exit(0);
	}
	wait_for(child);
}

static void activate_in_child(pcap_t *p, int port)
{
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		alarm(LIMIT_SECONDS);
		read_some("child", activated(p), port, 50, 3);
		pcap_close(p);
		exit(0);
	}
	wait_for(child);
}

int main(void)
{
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		printf("version %d\n", version);
		pcap_t *p = opened(far, version);
		read_some("before", p, port, 0, 3);
		close_in_child(p);
		read_some("after", p, port, 10, 6);
		print_stats(p);
		pcap_close(p);
		p = created(far, version);
		activate_in_child(p, port);
		read_some("parent", activated(p), port, 20, 3);
		pcap_close(p);
	}
	return 0;
}
