/* Two handles join a group by pcap_fanout() long after their activation. Usage: late DEVICE
   GROUP SENDER. Packets come before and after the join. Prints each handle's counters at the
   end. */
#include "scene.h"

enum { BEFORE = 50, AFTER = 10 };

static void tell(pcap_t *p)
{
	struct pcap_fanout_stat st = fanout_stats(p);

	printf("received %llu, group_received %llu, ps_recv %u\n", (unsigned long long)st.received,
	       (unsigned long long)st.group_received, received(p));
}

int main(int argc, char **argv)
{
	pcap_t *handles[2];

	if (argc != 4)
		fail("usage", "late DEVICE GROUP SENDER");
	for (int i = 0; i < 2; i++)
		handles[i] = opened(argv[1], 0, NULL);
	send_frames(argv[3], BEFORE);
	await_received(handles[0], handles[1], 2 * BEFORE);
	for (int i = 0; i < 2; i++) {
		if (pcap_fanout(handles[i], atoi(argv[2]), "lb") != 0)
			fail("pcap_fanout", pcap_geterr(handles[i]));
	}
	send_frames(argv[3], AFTER);
	await_received(handles[0], handles[1], 2 * BEFORE + AFTER);
	for (int i = 0; i < 2; i++)
		tell(handles[i]);
	for (int i = 0; i < 2; i++)
		pcap_close(handles[i]);
	return 0;
}
