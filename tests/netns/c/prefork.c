/* Two members, each read by a separate child, as in preforking servers. Usage: prefork DEVICE GROUP
   SENDER. One after the other, the children print what their member has received of 100 packets. */
#include "scene.h"
#include <sys/wait.h>

enum { CHILDREN = 2, FRAMES = 100 };

static void ignore(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	(void)header;
	(void)bytes;
}

static void look(pcap_t *member)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";

	if (pcap_setnonblock(member, 1, errbuf) != 0)
		fail("pcap_setnonblock", errbuf);
	if (pcap_dispatch(member, 1, ignore, NULL) != 0)
		fail("pcap_dispatch", "has not found that nothing has come");
}

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
	/* Under a steering program, a member has its share once it has been read. */
	for (int i = 0; i < CHILDREN; i++)
		look(members[i]);
	send_frames(argv[3], FRAMES);
	for (int i = 0; i < CHILDREN; i++)
		count_in_child(i, members[i]);
	for (int i = 0; i < CHILDREN; i++)
		pcap_close(members[i]);
	return 0;
}
