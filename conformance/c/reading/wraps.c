/* A small ring that wraps many times: each packet once, in order, complete. */
#include "../wire.h"

struct state {
	unsigned next, wrong;
};

static void check(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	struct state *state = (struct state *)user;
	size_t size = SMALLEST + state->next * 37 % 1400;
	state->wrong += number_of(bytes) != state->next || header->caplen != size || header->len != size ||
	                bytes[size - 1] != (u_char)(state->next + size - HEADER - 5);
	state->next++;
}

int main(void)
{
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		struct state state = { 0 };
		unsigned sent = 0;
		pcap_t *p = created(far, version);
		pcap_set_snaplen(p, 2000);
		/* The kernel's timer may close a block at any time, and the packets of a round must fit in the
		   remaining blocks. */
		pcap_set_buffer_size(p, version == 3 ? 1 << 20 : 300000);
		activated(p);
		for (int round = 0; round < 20; round++) {
			for (unsigned end = sent + 60; sent < end; sent++)
				send_sized(port, sent, 1, SMALLEST + sent * 37 % 1400);
			for (double end = now() + patience(); state.next < sent && now() < end;)
				pcap_dispatch(p, round % 2 ? -1 : 7, check, (u_char *)&state);
		}
		printf("version %d: %u of %u, wrong %u\n", version, state.next, sent, state.wrong);
		print_stats(p);
		pcap_close(p);
	}
	return 0;
}
