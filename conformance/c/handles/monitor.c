/* Monitor mode, which none of these devices has. */
#include "../wire.h"

int main(void)
{
	static const char *const devices[] = { "vb", "lo", "any", "nodevice0" };
	for (int i = 0; i < 4; i++) {
		pcap_t *p = created(devices[i], 3);
		printf("%s: %d", devices[i], pcap_can_set_rfmon(p));
		printf(" [%s],", pcap_geterr(p));
		printf(" set %d,", pcap_set_rfmon(p, 1));
		int rc = pcap_activate(p);
		printf(" activate %d [%s] %s\n", rc, pcap_geterr(p), pcap_statustostr(rc));
		pcap_close(p);
	}
	return 0;
}
