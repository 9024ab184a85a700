/* A busy member. Usage: burdened DEVICE GROUP MODE slow|ticks|asks MICROSECONDS
   [immediate|stays]. With `slow`, each callback takes MICROSECONDS. With `ticks`, a signal comes
   every MICROSECONDS. With `asks`, a signal comes MICROSECONDS after the handler of the last
   signal. The handler asks for the counters, which must include each packet that the program has
   received. The program prints "ready", and "N packets, N asked, N missing" when it is interrupted.
   With `stays`, it does not end then. GROUP may be - for the environment's group. */
#include "scene.h"
#include <errno.h>
#include <signal.h>
#include <sys/time.h>

static pcap_t *p;
static volatile sig_atomic_t packets, asked, missing;
static unsigned slow_us, asks_us;

static void stop(int signal)
{
	(void)signal;
	pcap_breakloop(p);
}

static void tick(int signal)
{
	(void)signal;
}

static void ask_in(unsigned microseconds)
{
	setitimer(ITIMER_REAL, &(struct itimerval){ .it_value = { 0, microseconds } }, NULL);
}

static void ask(int signal)
{
	int error = errno, had = packets;
	struct pcap_stat stat;

	(void)signal;
	if (pcap_stats(p, &stat) == 0) {
		asked++;
		missing += stat.ps_recv - stat.ps_drop < (unsigned)had;
	}
	/* Starts the timer again each time, so that the program makes progress however long the handler
	   takes. */
	ask_in(asks_us);
	errno = error;
}

static void count(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	(void)header;
	(void)bytes;
	packets++;
	if (slow_us > 0)
		usleep(slow_us);
}

static void burden(const char *how, unsigned microseconds)
{
	const struct timeval period = { 0, microseconds };
	struct sigaction action = { .sa_handler = tick, .sa_flags = SA_RESTART };

	if (strcmp(how, "slow") == 0) {
		slow_us = microseconds;
	} else if (strcmp(how, "ticks") == 0) {
		sigaction(SIGALRM, &action, NULL);
		setitimer(ITIMER_REAL, &(struct itimerval){ period, period }, NULL);
	} else {
		action.sa_handler = ask;
		asks_us = microseconds;
		sigaction(SIGALRM, &action, NULL);
		ask_in(asks_us);
	}
}

int main(int argc, char **argv)
{
	const char *how = argc > 6 ? argv[6] : "";

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 6)
		fail("usage", "burdened DEVICE GROUP MODE slow|ticks|asks MICROSECONDS [immediate|stays]");
	p = created(argv[1]);
	pcap_set_buffer_size(p, 32 << 20);
	pcap_set_immediate_mode(p, strcmp(how, "immediate") == 0);
	if (strcmp(argv[2], "-") != 0 && pcap_fanout(p, atoi(argv[2]), argv[3]) != 0)
		fail("pcap_fanout", pcap_geterr(p));
	if (pcap_activate(p) < 0)
		fail("pcap_activate", pcap_geterr(p));
	signal(SIGINT, stop);
	puts("ready");
	burden(argv[4], (unsigned)atoi(argv[5]));
	if (pcap_loop(p, -1, count, NULL) == PCAP_ERROR)
		fail("pcap_loop", pcap_geterr(p));
	setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
	printf("%d packets, %d asked, %d missing\n", (int)packets, (int)asked, (int)missing);
	pcap_close(p);
	if (strcmp(how, "stays") == 0)
		pause();
	return 0;
}
