/* Filters that alternate under constant traffic: after each change, only packets that the new filter passes. */
#include <pthread.h>
#include "../wire.h"

enum { ROUNDS = 60 };

static volatile int stop;
static unsigned wanted, wrong, seen;

static void *send_on(void *port)
{
	for (unsigned number = 0; !stop; number += 20) {
		send_numbered(*(int *)port, number, 20);
		sleep_ms(1);
	}
	return NULL;
}

static void check(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	(void)header;
	seen++;
	wrong += number_of(bytes) % 2 != wanted;
}

int main(void)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		pthread_t thread;
		pcap_t *p = created(far, version);
		pcap_set_snaplen(p, 100);
		activated(p);
		pcap_setnonblock(p, 1, errbuf);
		stop = 0;
		wrong = seen = 0;
		pthread_create(&thread, NULL, send_on, &port);
		for (int round = 0; round < ROUNDS; round++) {
			wanted = (unsigned)round % 2;
			filter(p, wanted ? "ether[17] & 1 == 1" : "ether[17] & 1 == 0");
			for (int i = 0; i < 8; i++) {
				pcap_dispatch(p, i % 3 ? -1 : 5, check, NULL);
				sleep_ms(1);
			}
		}
		stop = 1;
		pthread_join(thread, NULL);
		printf("version %d: some came %s, wrong %u\n", version, yes(seen > 100), wrong);
		pcap_close(p);
	}
	return 0;
}
