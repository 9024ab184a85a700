/* A capturing process of the soak test. Usage: soak ROLE DEVICE [GROUP MODE]. Prints "ready",
   then its progress until it is interrupted, then its ledgers. After an error, prints a line
   that begins with FAIL, and ends. */
#include "breaks.h"
#include "churn.h"
#include "filters.h"
#include "resident.h"

#include <signal.h>

enum { TELL_SECONDS = 5 };

static const struct role {
	const char *name;
	void (*start)(void), (*tell)(void), (*end)(void);
} roles[] = {
	{ "resident", start_resident, tell_resident, end_resident },
	{ "slow", start_slow, tell_resident, end_resident },
	{ "visitor", start_resident, tell_resident, end_visitor },
	{ "filters", start_filters, tell_filters, end_filters },
	{ "breaks", start_breaks, tell_breaks, end_breaks },
	{ "churn", start_churn, tell_churn, end_churn },
};

static void play(const struct role *role)
{
	const struct timespec period = { .tv_sec = TELL_SECONDS };
	sigset_t interrupt;

	/* All threads block the signal, and the main thread waits for it here. */
	sigemptyset(&interrupt);
	sigaddset(&interrupt, SIGINT);
	pthread_sigmask(SIG_BLOCK, &interrupt, NULL);
	role->start();
	puts("ready");
	while (sigtimedwait(&interrupt, NULL, &period) != SIGINT)
		role->tell();
	atomic_store(&stop, 1);
	role->end();
	role->tell();
	puts("finished");
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc != 3 && argc != 5)
		fail("usage", "soak ROLE DEVICE [GROUP MODE]");
	device = argv[2];
	if (argc > 3) {
		group = atoi(argv[3]);
		mode = argv[4];
	}
	for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
		if (strcmp(argv[1], roles[i].name) == 0) {
			play(&roles[i]);
			return 0;
		}
	}
	fail(argv[1], "no such role");
}
