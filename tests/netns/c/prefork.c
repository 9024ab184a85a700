/* Two members, each left to a child of its own, as servers do: prefork DEVICE GROUP SENDER. Each child,
   one after the other, says what its member has of 100 packets. */
#include "scene.h"
#include <sys/wait.h>

enum { CHILDREN = 2, FRAMES = 100 };

static void count_in_child(int number, pcap_t *member)
{
	int status = -1;
	pid_t child = fork();

	if (child == 0) {
		await_received(member, NULL, FRAMES / CHILDREN);
		printf("child %d: received %llu, ps_recv %u\n", number,
		       (unsigned long long)fanout_stats(member).received, received(member));
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, &status, 0);
	if (status != 0)
		fail("the child", "failed");
}

int main(int argc, char **argv)
{
	pcap_t *members[CHILDREN];

	if (argc != 4)
		fail("usage", "prefork DEVICE GROUP SENDER");
	for (int i = 0; i < CHILDREN; i++)
		members[i] = opened(argv[1], atoi(argv[2]), "lb");
	send_frames(argv[3], FRAMES);
	for (int i = 0; i < CHILDREN; i++)
		count_in_child(i, members[i]);
	for (int i = 0; i < CHILDREN; i++)
		pcap_close(members[i]);
	return 0;
}
