/* pcap_breakloop() wakes a reader that waits: from another thread, and from a signal handler. */
#include <pthread.h>
#include <signal.h>
#include "../wire.h"

enum { DELAY = 80 };

static pcap_t *breaking;

static void *break_later(void *p)
{
	sleep_ms(DELAY);
	pcap_breakloop(p);
	return NULL;
}

static void on_signal(int signal)
{
	(void)signal;
	pcap_breakloop(breaking);
}

static void *signal_later(void *thread)
{
	sleep_ms(DELAY);
	pthread_kill(*(pthread_t *)thread, SIGUSR1);
	return NULL;
}

static void returned(const char *how, double begin, int rc)
{
	double waited = now() - begin;
	printf("  %s: %d, waited %s, woken %s\n", how, rc, yes(waited > DELAY / 1e3 * 0.9), yes(waited < 5));
}

static void woken_by(pcap_t *p, const char *how, void *(*waker)(void *), void *argument)
{
	struct pcap_pkthdr *header;
	const u_char *bytes;
	unsigned count = 0;
	pthread_t thread;
	for (int call = 0; call < 3; call++) {
		double begin = now();
		pthread_create(&thread, NULL, waker, argument);
		int rc = call == 0   ? pcap_loop(p, -1, count_packet, (u_char *)&count)
		         : call == 1 ? pcap_dispatch(p, -1, count_packet, (u_char *)&count)
		                     : pcap_next_ex(p, &header, &bytes);
		returned(how, begin, rc);
		pthread_join(thread, NULL);
	}
	printf("  %u packets\n", count);
}

int main(void)
{
	struct sigaction action = { .sa_handler = on_signal };
	pthread_t self = pthread_self();
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		pcap_t *p = breaking = opened(far, version);
		printf("version %d\n", version);
		woken_by(p, "by a thread", break_later, p);
		action.sa_flags = 0;
		sigaction(SIGUSR1, &action, NULL);
		woken_by(p, "by a signal", signal_later, &self);
		action.sa_flags = SA_RESTART;
		sigaction(SIGUSR1, &action, NULL);
		woken_by(p, "by a signal that restarts calls", signal_later, &self);
		send_numbered(port, 0, 5);
		settle(p, 5);
		printf("  then:");
		printf(" -> %d\n", pcap_dispatch(p, -1, print_number, NULL));
		pcap_close(p);
	}
	return 0;
}
