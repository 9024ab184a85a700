/* A reader that waits while another thread sends: it gets every packet once, in order, with the right bytes. */
#include <pthread.h>
#include "../wire.h"

enum { PACKETS = 3000 };

struct state {
	unsigned next, wrong;
	unsigned long long hash;
};

static void check(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	struct state *state = (struct state *)user;
	state->wrong += number_of(bytes) != state->next++;
	for (unsigned i = 0; i < header->caplen; i++)
		state->hash = (state->hash ^ bytes[i]) * 1099511628211u;
}

static void *send_all(void *port)
{
	for (unsigned i = 0; i < PACKETS; i++) {
		send_sized(*(int *)port, i, 1, SMALLEST + i % 900);
		if (i % 100 == 0)
			sleep_ms(1);
	}
	return NULL;
}

int main(void)
{
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		struct state state = { .hash = 14695981039346656037u };
		pthread_t thread;
		pcap_t *p = created(far, version);
		pcap_set_snaplen(p, 1000);
		/* The buffer is so large that the kernel drops no packet, even if the reader is slow. */
		pcap_set_buffer_size(p, 16 << 20);
		activated(p);
		pthread_create(&thread, NULL, send_all, &port);
		int rc = pcap_loop(p, PACKETS, check, (u_char *)&state);
		pthread_join(thread, NULL);
		printf("version %d: %d, %u packets, wrong %u, hash %llx\n", version, rc, state.next, state.wrong,
		       state.hash);
		print_stats(p);
		pcap_close(p);
	}
	return 0;
}
