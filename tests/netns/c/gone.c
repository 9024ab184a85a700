/* Reads f1^f2, even after errors, until a packet with tag 9 has come, or reads have failed for a
   while. Prints the tags, and the first error. */
#include "wires.h"

enum { LAST = 9, FAILURES = 150 };

static int last;

static void print(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	(void)header;
	last = bytes[TAG_AT];
	printf("packet %d\n", last);
}

int main(void)
{
	pcap_t *p = opened_how("f1^f2", "plain", 20);
	int failures = 0;

	puts("ready");
	while (last != LAST && failures < FAILURES) {
		if (pcap_dispatch(p, -1, print, NULL) >= 0)
			continue;
		if (failures++ == 0)
			printf("error: %s\n", pcap_geterr(p));
		sleep_ms(10);
	}
	puts("end");
	pcap_close(p);
	return 0;
}
