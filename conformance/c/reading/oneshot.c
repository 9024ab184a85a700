/* The results of pcap_next() and pcap_next_ex() do not change until the next call, even if packets arrive. */
#include "../wire.h"

enum { SIZE = 400 };

static int intact(const u_char *bytes)
{
	for (unsigned i = 0; i < SIZE - HEADER - 4; i++)
		if (bytes[HEADER + 4 + i] != (u_char)(number_of(bytes) + i))
			return 0;
	return 1;
}

int main(void)
{
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		struct pcap_pkthdr *first, *second, third;
		const u_char *one, *two, *three;
		pcap_t *p = created(far, version);
		/* A small ring, so that later packets use all of it. In version 3 the ring has two blocks,
		   because the kernel's timer may close a block between the first packets. */
		pcap_set_snaplen(p, 512);
		pcap_set_buffer_size(p, 300000);
		activated(p);
		send_sized(port, 1, 3, SIZE);
		settle(p, 3);
		int rc = pcap_next_ex(p, &first, &one);
		send_sized(port, 100, 2000, SIZE);
		sleep_ms(settled());
		printf("version %d: %d, %u, %s\n", version, rc, number_of(one), yes(intact(one)));
		rc = pcap_next_ex(p, &second, &two);
		printf("  %d, %u, %s\n", rc, number_of(two), yes(intact(two)));
		printf("  same buffer %s, same header %s\n", yes(one == two), yes(first == second));
		three = pcap_next(p, &third);
		printf("  next: %u, %u of %u, same buffer %s\n", number_of(three), third.caplen, third.len,
		       yes(three == two));
		printf("  next_ex's header still has %u of %u\n", second->caplen, second->len);
		pcap_close(p);
	}
	return 0;
}
