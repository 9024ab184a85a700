/* Changes a filter or direction after the first packet of f1^f2 has been read. Usage: merged_change
   filter|direction plain|immediate. Prints the tags of the packets that are delivered before and
   after the change. */
#include "wires.h"

enum { TIMEOUT_MS = 20, SETTLED_MS = 150, BEFORE = 6 };

/* Waits until COUNT packets have come, and until the merge no longer holds any of them back for
   earlier packets.
 */
static void settle(pcap_t *p, unsigned count)
{
	await_received(p, NULL, count);
	sleep_ms(SETTLED_MS);
}

static void read_all(pcap_t *p)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	int n = pcap_setnonblock(p, 1, errbuf);

	/* Calls it ten times. A call that returns 0 may have read only packets that the filter
	   rejects, and packets that pass may follow. */
	for (int i = 0; i < 10 && n >= 0; i++)
		n = pcap_dispatch(p, -1, print_tag, NULL);
	if (n < 0)
		fail("pcap_dispatch", pcap_geterr(p));
}

int main(int argc, char **argv)
{
	int near[2], far;
	pcap_t *p;

	if (argc != 3)
		fail("usage", "merged_change filter|direction plain|immediate");
	near[0] = port_of("n1");
	near[1] = port_of("n2");
	far = port_of("f1");
	p = opened_how("f1^f2", argv[2], TIMEOUT_MS);
	for (int i = 1; i <= BEFORE; i++)
		send_tag(near[i % 2], i);
	settle(p, BEFORE);
	printf("before:");
	if (pcap_dispatch(p, 1, print_tag, NULL) != 1)
		fail("pcap_dispatch", pcap_geterr(p));
	if (strcmp(argv[1], "filter") == 0) {
		set_filter(p, "ether[14] = 9 or ether[14] = 5");
		send_tag(near[0], 8);
		send_tag(near[0], 9);
	} else {
		if (pcap_setdirection(p, PCAP_D_OUT) != 0)
			fail("pcap_setdirection", pcap_geterr(p));
		send_tag(near[0], 8);
		send_tag(far, 9);
	}
	sleep_ms(SETTLED_MS);
	printf("\nafter:");
	read_all(p);
	printf("\n");
	pcap_close(p);
	return 0;
}
