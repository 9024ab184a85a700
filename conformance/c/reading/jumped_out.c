/* A signal handler that leaves a waiting read by siglongjmp(), as programs implement timeouts: the next read works. */
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include "../wire.h"

enum { DELAY_MS = 60, TIMES = 2 };

static sigjmp_buf out;

static void leave(int signal)
{
	(void)signal;
	siglongjmp(out, 1);
}

static int read_one(pcap_t *p, int call)
{
	struct pcap_pkthdr *header;
	const u_char *bytes;
	int rc;
	if (call == 0)
		return pcap_loop(p, 1, print_number, NULL);
	if (call == 1)
		return pcap_dispatch(p, 1, print_number, NULL);
	if ((rc = pcap_next_ex(p, &header, &bytes)) == 1)
		print_number(NULL, header, bytes);
	return rc;
}

/* Leaves a read by a timer. The alarm of limit() uses the same timer, so the function sets the
   alarm again at the end. */
static void timed_out(pcap_t *p, int call)
{
	signal(SIGALRM, leave);
	if (sigsetjmp(out, 1) == 0) {
		setitimer(ITIMER_REAL, &(struct itimerval){ .it_value.tv_usec = DELAY_MS * 1000 }, NULL);
		int rc = read_one(p, call);
		printf(" returned %d [%s]", rc, rc < 0 ? pcap_geterr(p) : "");
	} else {
		printf(" timed out");
	}
	signal(SIGALRM, SIG_DFL);
	alarm(LIMIT_SECONDS);
}

int main(void)
{
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		pcap_t *p = opened(far, version);
		for (int call = 0; call < 3; call++) {
			printf("version %d, call %d:", version, call);
			for (int i = 0; i < TIMES; i++)
				timed_out(p, call);
			send_numbered(port, (unsigned)call, 1);
			int rc = read_one(p, call);
			printf(" -> %d [%s]\n", rc, rc < 0 ? pcap_geterr(p) : "");
		}
		print_stats(p);
		pcap_close(p);
	}
	return 0;
}
