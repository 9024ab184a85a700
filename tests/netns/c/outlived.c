/* A child process starts after a member has joined, and inherits descriptors. The member is closed
   while this child still runs. Usage: outlived DEVICE GROUP SENDER. Prints how many of 100 packets
   the group's other member gets after that. */
#include "scene.h"

enum { FRAMES = 100 };

int main(int argc, char **argv)
{
	pcap_t *stays, *goes;
	FILE *program;
	struct pcap_fanout_stat st;

	if (argc != 4)
		fail("usage", "outlived DEVICE GROUP SENDER");
	stays = opened(argv[1], atoi(argv[2]), "lb");
	goes = opened(argv[1], atoi(argv[2]), "lb");
	/* The child runs until the pipe is closed, with all descriptors that it inherited. */
	program = popen("cat >/dev/null", "w");
	if (program == NULL)
		fail("popen", "failed");
	pcap_close(goes);
	send_frames(argv[3], FRAMES);
	await_received(stays, NULL, FRAMES);
	st = fanout_stats(stays);
	printf("received %llu of %d, members %llu\n", (unsigned long long)st.received, FRAMES,
	       (unsigned long long)st.members);
	pclose(program);
	pcap_close(stays);
	return 0;
}
