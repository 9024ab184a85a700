/* A member in a process that may not write to files (RLIMIT_FSIZE is 0). Usage: limited DEVICE
   GROUP MODE [stays]. */
#include "scene.h"
#include <sys/resource.h>

int main(int argc, char **argv)
{
	struct rlimit before, none;
	pcap_t *p;

	if (argc < 4 || getrlimit(RLIMIT_FSIZE, &before) != 0)
		fail("usage", "limited DEVICE GROUP MODE [stays]");
	none = before;
	none.rlim_cur = 0;
	if (setrlimit(RLIMIT_FSIZE, &none) != 0)
		fail("setrlimit", "refused");
	p = opened(argv[1], atoi(argv[2]), argv[3]);
	/* Raises the limit again, because standard output is a file. */
	if (setrlimit(RLIMIT_FSIZE, &before) != 0)
		return 1;
	printf("%llu members, sums %s\n", (unsigned long long)fanout_stats(p).members,
	       fanout_stats(p).valid & PCAP_FANOUT_STAT_GROUP_RECEIVED ? "known" : "unknown");
	fflush(stdout);
	if (argc > 4)
		pause();
	pcap_close(p);
	return 0;
}
