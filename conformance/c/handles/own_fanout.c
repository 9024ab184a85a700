/* A program that puts its handles' sockets into a fanout group itself: each packet goes to one handle. */
#include "../wire.h"

static void await_both(pcap_t **members, unsigned count)
{
	for (double end = now() + patience(); received(members[0]) + received(members[1]) < count && now() < end;)
		sleep_ms(1);
	sleep_ms(settled());
}

int main(void)
{
	int port = port_of(near), group = PACKET_FANOUT_LB << 16 | 33;
	for (int version = 2; version <= 3; version++) {
		unsigned counts[2] = { 0 };
		pcap_t *members[2];
		for (int i = 0; i < 2; i++) {
			members[i] = opened(far, version);
			int rc = setsockopt(pcap_fileno(members[i]), SOL_PACKET, PACKET_FANOUT, &group, sizeof group);
			printf("join: %d [%s]\n", rc, rc ? strerror(errno) : "");
		}
		send_numbered(port, 0, 100);
		await_both(members, 100);
		for (int i = 0; i < 2; i++) {
			drain(members[i], count_packet, &counts[i]);
			pcap_close(members[i]);
		}
		printf("version %d: %u and %u\n", version, counts[0], counts[1]);
	}
	return 0;
}
