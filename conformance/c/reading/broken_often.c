/* Repeated pcap_breakloop() from another thread, and signals, while packets arrive: none is lost or repeated. */
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include "../wire.h"

enum { PACKETS = 2000 };

static volatile int stop;
static unsigned next, wrong;

static void check(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	(void)header;
	wrong += number_of(bytes) != next++;
}

static void *break_on(void *p)
{
	while (!stop) {
		pcap_breakloop(p);
		sleep_ms(1);
	}
	return NULL;
}

static void *send_all(void *port)
{
	for (unsigned i = 0; i < PACKETS; i += 10) {
		send_numbered(*(int *)port, i, 10);
		sleep_ms(1);
	}
	return NULL;
}

static void ignore(int signal)
{
	(void)signal;
}

int main(void)
{
	struct sigaction action = { .sa_handler = ignore };
	struct itimerval often = { { 0, 1500 }, { 0, 1500 } };
	int port = port_of(near);
	sigaction(SIGPROF, &action, NULL);
	setitimer(ITIMER_PROF, &often, NULL);
	for (int version = 2; version <= 3; version++) {
		pthread_t breaker, sender;
		unsigned broken = 0;
		pcap_t *p = created(far, version);
		pcap_set_snaplen(p, 100);
		/* The buffer is so large that the kernel drops no packet, even if the reader is slow. */
		pcap_set_buffer_size(p, 16 << 20);
		activated(p);
		stop = 0;
		next = wrong = 0;
		pthread_create(&breaker, NULL, break_on, p);
		pthread_create(&sender, NULL, send_all, &port);
		while (next < PACKETS) {
			int rc = pcap_loop(p, -1, check, NULL);
			if (rc != PCAP_ERROR_BREAK)
				fail("pcap_loop", pcap_geterr(p));
			broken++;
		}
		stop = 1;
		pthread_join(breaker, NULL);
		pthread_join(sender, NULL);
		printf("version %d: %u packets, wrong %u, broken more than once %s\n", version, next, wrong,
		       yes(broken > 1));
		print_stats(p);
		pcap_close(p);
	}
	return 0;
}
