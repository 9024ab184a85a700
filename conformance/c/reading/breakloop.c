/* pcap_breakloop() before a call and within the callback: the results, and no packet is lost. */
#include "../wire.h"

static pcap_t *breaking;
static unsigned break_at;

static void break_at_number(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	print_number(user, header, bytes);
	if (number_of(bytes) == break_at)
		pcap_breakloop(breaking);
}

static void within(pcap_t *p, const char *name, int (*read)(pcap_t *, int, pcap_handler, u_char *), int most,
                   unsigned at)
{
	breaking = p;
	break_at = at;
	printf("  %s %d, broken at %u:", name, most, at);
	printf(" -> %d\n", read(p, most, break_at_number, NULL));
}

static void before(pcap_t *p, const char *name, int (*read)(pcap_t *, int, pcap_handler, u_char *))
{
	pcap_breakloop(p);
	printf("  %s, broken before:", name);
	printf(" -> %d\n", read(p, 2, print_number, NULL));
	printf("  and again:");
	printf(" -> %d\n", read(p, 2, print_number, NULL));
}

static void before_next(pcap_t *p)
{
	struct pcap_pkthdr *header;
	const u_char *bytes = NULL;
	pcap_breakloop(p);
	int rc = pcap_next_ex(p, &header, &bytes);
	printf("  next_ex, broken before: %d", rc);
	rc = pcap_next_ex(p, &header, &bytes);
	printf(", and again: %d, %u\n", rc, rc == 1 ? number_of(bytes) : 0);
}

int main(void)
{
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		pcap_t *p = opened(far, version);
		printf("version %d\n", version);
		send_numbered(port, 0, 60);
		settle(p, 60);
		within(p, "dispatch", pcap_dispatch, -1, 3);
		within(p, "dispatch", pcap_dispatch, 10, 13);
		within(p, "dispatch", pcap_dispatch, 6, 15);
		within(p, "loop", pcap_loop, -1, 22);
		within(p, "loop", pcap_loop, 2, 24);
		within(p, "loop", pcap_loop, 0, 26);
		before(p, "dispatch", pcap_dispatch);
		before(p, "loop", pcap_loop);
		before_next(p);
		printf("  rest:");
		printf(" -> %d\n", drain(p, print_number, NULL));
		pcap_close(p);
	}
	return 0;
}
