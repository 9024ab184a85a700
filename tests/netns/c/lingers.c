/* A steered group's last member is closed, but its socket ends only a second later, as on a busy
   machine: a child also has the socket. In that second the next member opens. Usage: lingers DEVICE
   GROUP. Prints how many members the group has then. */
#include "scene.h"
#include <sys/wait.h>

int main(int argc, char **argv)
{
	pcap_t *last, *next;
	int child;

	if (argc != 3)
		fail("usage", "lingers DEVICE GROUP");
	last = opened(argv[1], atoi(argv[2]), "flow");
	child = fork();
	if (child == 0) {
		sleep(1);
		_exit(0);
	}
	pcap_close(last);
	next = opened(argv[1], atoi(argv[2]), "flow");
	waitpid(child, NULL, 0);
	printf("opened, members %llu\n", (unsigned long long)fanout_stats(next).members);
	pcap_close(next);
	return 0;
}
