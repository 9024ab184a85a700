/* Reads the data of a group whose pages are in /dev/shm. Usage: sees DEVICE GROUP. Prints how many
   pages exist while this program is a member, and whether the group's sums are known. */
#include "scene.h"
#include <glob.h>

int main(int argc, char **argv)
{
	struct pcap_fanout_stat stat;
	glob_t found = { 0 };
	pcap_t *p;

	if (argc != 3)
		fail("usage", "sees DEVICE GROUP");
	p = opened(argv[1], atoi(argv[2]), "hash");
	(void)received(p);
	stat = fanout_stats(p);
	glob("/dev/shm/fanpcap/v7/*/*/*", 0, NULL, &found);
	printf("%zu pages, sums %s\n", found.gl_pathc,
	       stat.valid & PCAP_FANOUT_STAT_GROUP_RECEIVED ? "known" : "unknown");
	globfree(&found);
	pcap_close(p);
	return 0;
}
