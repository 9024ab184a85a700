/* Handles in new groups on DEVICE. Usage: new_groups DEVICE. Prints whether the groups differ, and
   whether a third handle joins the first one's group by its number. */
#include "scene.h"

static pcap_t *member(const char *device, int group)
{
	pcap_t *p = created(device);

	if (pcap_fanout(p, group, group == PCAP_FANOUT_NEW ? "flow" : NULL) != 0)
		fail("pcap_fanout", pcap_geterr(p));
	if (pcap_activate(p) != 0)
		fail("pcap_activate", pcap_geterr(p));
	return p;
}

int main(int argc, char **argv)
{
	const char *device = argc == 2 ? argv[1] : "";
	pcap_t *first = member(device, PCAP_FANOUT_NEW), *other = member(device, PCAP_FANOUT_NEW);
	int group = pcap_fanout_group(first);
	pcap_t *third = member(device, group);
	struct pcap_fanout_stat stat = { .size = sizeof(stat) };

	if (pcap_fanout_stats(first, &stat) != 0)
		fail("pcap_fanout_stats", pcap_geterr(first));
	printf("%s, %s, %s, %s\n", group >= 0 && group <= 65535 ? "a number" : "no number",
	       pcap_fanout_group(other) != group ? "another" : "the same",
	       pcap_fanout_group(third) == group ? "joined" : "not joined",
	       stat.group == group ? "in the statistics" : "not in the statistics");
	pcap_close(third);
	pcap_close(other);
	pcap_close(first);
	return 0;
}
