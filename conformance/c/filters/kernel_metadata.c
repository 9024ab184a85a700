/* Filters on direction and interface, which only the kernel can check, after the queue is drained. */
#include "../wire.h"
#include "../tags.h"
#include "../pinned.h"

static void send_some(int in, int out)
{
	for (size_t i = 0; i < 4; i++) {
		send_tagged(in, &taggings[i], 60 + i);
		send_tagged(out, &taggings[i], 80 + i);
	}
}

static void capture(int in, int out, const char *device, int version, const char *expression)
{
	unsigned count = 0;
	pcap_t *p = opened(device, version);
	printf("%s, version %d, %s:", device, version, expression);
	if (!tried(p, expression))
		return;
	/* The library filters the first packets too, because they might have been queued before the
	   filter was set. Print only the packets that come after these. */
	send_some(in, out);
	sleep_ms(settled());
	drain(p, count_packet, &count);
	send_some(in, out);
	sleep_ms(settled());
	printf(" -> %d\n", drain(p, print_size, NULL));
	print_stats(p);
	pcap_close(p);
}

int main(void)
{
	static const char *const expressions[] = { "inbound", "outbound", "inbound and vlan", "ifindex 2", "ifindex 3",
		                                   "ifindex 99", "outbound and ip" };
	int in = port_of(near), out = port_of(far);
	stay_on_cpu();
	for (int version = 2; version <= 3; version++)
		for (size_t i = 0; i < sizeof expressions / sizeof expressions[0]; i++) {
			if (version == 3 || i % 2)
				capture(in, out, far, version, expressions[i]);
			if (version == 3 && i < 5)
				capture(in, out, "any", version, expressions[i]);
		}
	return 0;
}
