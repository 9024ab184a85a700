/* Opens a member for each of several names of its thread. Usage: renamed DEVICE NAME... Prints the
   warnings of pcap_activate(), then "ready". Keeps its members until it is interrupted. */
#include "scene.h"
#include <signal.h>
#include <sys/prctl.h>

int main(int argc, char **argv)
{
	pcap_t **members = calloc((size_t)argc, sizeof(*members));
	sigset_t interrupt;
	int signal;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 3 || members == NULL)
		fail("usage", "renamed DEVICE NAME...");
	sigemptyset(&interrupt);
	sigaddset(&interrupt, SIGINT);
	sigprocmask(SIG_BLOCK, &interrupt, NULL);
	for (int i = 2; i < argc; i++) {
		pcap_t *p = members[i] = created(argv[1]);
		int status;

		prctl(PR_SET_NAME, argv[i]);
		status = pcap_activate(p);
		if (status < 0)
			fail("pcap_activate", pcap_geterr(p));
		if (status > 0)
			printf("warning %d: %s\n", status, pcap_geterr(p));
		printf("%s in group %d\n", argv[i], pcap_fanout_group(p));
	}
	puts("ready");
	sigwait(&interrupt, &signal);
	for (int i = 2; i < argc; i++)
		pcap_close(members[i]);
	free(members);
	return 0;
}
