/* pcap_stats() in a signal handler that interrupts pcap_stats(). Usage: signals DEVICE [GROUP
   MODE]. Ends after INTERRUPTIONS interruptions. With so many, some must have come in the middle
   of the call. */
#include "scene.h"
#include <signal.h>
#include <sys/time.h>

enum { INTERRUPTIONS = 2000, PERIOD_US = 50 };

static pcap_t *p;
static volatile sig_atomic_t interruptions;

static void count(int signal)
{
	struct pcap_stat stat;

	(void)signal;
	interruptions += pcap_stats(p, &stat) == 0;
}

int main(int argc, char **argv)
{
	const struct itimerval period = { { 0, PERIOD_US }, { 0, PERIOD_US } };
	struct sigaction action = { .sa_handler = count, .sa_flags = SA_RESTART };

	if (argc != 2 && argc != 4)
		fail("usage", "signals DEVICE [GROUP MODE]");
	p = opened(argv[1], argc > 2 ? atoi(argv[2]) : 0, argc > 2 ? argv[3] : NULL);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &period, NULL);
	while (interruptions < INTERRUPTIONS)
		(void)received(p);
	setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
	pcap_close(p);
	puts("done");
	return 0;
}
