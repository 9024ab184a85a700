/* Directions: set before and after packets are queued, the statistics after that, and the refused directions. */
#include "../wire.h"

static void mixed(int in, int out)
{
	for (unsigned i = 0; i < 30; i++)
		send_numbered(i % 3 == 2 ? out : in, i, 1);
}

static void capture(int in, int out, int version, pcap_direction_t direction, int before)
{
	pcap_t *p = opened(far, version);
	int rc = before ? pcap_setdirection(p, direction) : 0;
	mixed(in, out);
	settle(p, 30);
	if (!before)
		rc = pcap_setdirection(p, direction);
	printf("version %d, direction %d set %s: %d", version, direction, before ? "first" : "while queued", rc);
	printf(" -> %d\n", drain(p, print_number, NULL));
	print_stats(p);
	pcap_close(p);
}

int main(void)
{
	int in = port_of(near), out = port_of(far);
	for (int version = 2; version <= 3; version++)
		for (int before = 0; before <= 1; before++) {
			capture(in, out, version, PCAP_D_INOUT, before);
			capture(in, out, version, PCAP_D_IN, before);
			capture(in, out, version, PCAP_D_OUT, before);
		}
	pcap_t *p = opened(far, 3);
	for (int bad = -1; bad <= 4; bad++) {
		int rc = pcap_setdirection(p, (pcap_direction_t)bad);
		printf("%d: %d [%s]\n", bad, rc, rc ? pcap_geterr(p) : "");
	}
	pcap_close(p);
	p = created(far, 3);
	int rc = pcap_setdirection(p, PCAP_D_IN);
	printf("not activated: %d [%s]\n", rc, pcap_geterr(p));
	pcap_close(p);
	return 0;
}
