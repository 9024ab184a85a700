/* Threads with one handle each, on different devices: each receives only its device's packets. */
#include <pthread.h>
#include "../wire.h"

enum { PACKETS = 400 };

struct reader {
	const char *device;
	int version, rc;
	unsigned count;
	pcap_t *p;
};

static void *read_all(void *argument)
{
	struct reader *reader = argument;
	reader->rc = pcap_loop(reader->p, PACKETS, count_packet, (u_char *)&reader->count);
	return NULL;
}

static void *open_and_close(void *unused)
{
	(void)unused;
	for (int i = 0; i < 5; i++)
		pcap_close(opened("any", 2 + i % 2));
	return NULL;
}

int main(void)
{
	int ports[2] = { port_of(near), port_of(far) };
	for (int version = 2; version <= 3; version++) {
		struct reader readers[2] = { { far, version, 0, 0, NULL }, { near, 5 - version, 0, 0, NULL } };
		pthread_t threads[2], other;
		for (int i = 0; i < 2; i++) {
			readers[i].p = created(readers[i].device, readers[i].version);
			pcap_set_snaplen(readers[i].p, 100);
			/* The buffer is so large that the kernel drops no packet, even if a reader is slow. */
			pcap_set_buffer_size(readers[i].p, 16 << 20);
			activated(readers[i].p);
			pcap_setdirection(readers[i].p, PCAP_D_IN);
			pthread_create(&threads[i], NULL, read_all, &readers[i]);
		}
		pthread_create(&other, NULL, open_and_close, NULL);
		for (unsigned i = 0; i < PACKETS; i++) {
			send_numbered(ports[0], i, 1);
			send_numbered(ports[1], i, 1);
		}
		for (int i = 0; i < 2; i++) {
			pthread_join(threads[i], NULL);
			/* The device may send its last packets later. */
			settle(readers[i].p, 2 * PACKETS);
			if (is_uncounted())
				drain(readers[i].p, count_packet, (u_char *)&readers[i].count);
			printf("%s: %d, %u\n", readers[i].device, readers[i].rc, readers[i].count);
			print_stats(readers[i].p);
			pcap_close(readers[i].p);
		}
		pthread_join(other, NULL);
	}
	return 0;
}
