/* A signal handler leaves libpcap's calls by siglongjmp(). Usage: leaves DEVICE GROUP
   filter|replace. Each time the handler leaves at another setsockopt(2) of the call. After that,
   the same call must work. Pauses between calls, because sockets get at most 20 filters a
   second. */
#define _GNU_SOURCE
#include "scene.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum { MOST = 6 };

static sigjmp_buf out;
static volatile sig_atomic_t left_to_signal;
static pcap_t *p;
static int group;

/* Replaces the C library's function: our library's calls reach this function. */
int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	if (left_to_signal > 0 && --left_to_signal == 0)
		raise(SIGUSR1);
	return (int)syscall(SYS_setsockopt, fd, level, name, value, len);
}

static void leave(int signal)
{
	(void)signal;
	siglongjmp(out, 1);
}

static int change_filter(int which)
{
	static const char *const texts[] = { "tcp or arp", "tcp port 80 or arp" };
	struct bpf_program program;
	int status;

	if (pcap_compile(p, &program, texts[which % 2], 1, PCAP_NETMASK_UNKNOWN) != 0)
		fail("pcap_compile", pcap_geterr(p));
	status = pcap_setfilter(p, &program);
	pcap_freecode(&program);
	return status;
}

static int replace(int which)
{
	static const char *const programs[] = { "main = tcp >-> steer_rrobin", "main = udp >-> steer_rrobin" };

	return pcap_fanout(p, group, programs[which % 2]);
}

int main(int argc, char **argv)
{
	const struct timespec pause = { .tv_nsec = 200000000 };
	int (*volatile call)(int);
	volatile int left = 0;

	if (argc != 4)
		fail("usage", "leaves DEVICE GROUP filter|replace");
	call = strcmp(argv[3], "filter") == 0 ? change_filter : replace;
	group = atoi(argv[2]);
	p = opened(argv[1], group, "main = tcp >-> steer_rrobin");
	signal(SIGUSR1, leave);
	for (volatile int at = 1; at <= MOST; at++) {
		left_to_signal = at;
		if (sigsetjmp(out, 1) == 0)
			(void)call(at);
		else
			left++;
		left_to_signal = 0;
		nanosleep(&pause, NULL);
		if (call(at + 1) != 0)
			fail(argv[3], pcap_geterr(p));
		nanosleep(&pause, NULL);
	}
	pcap_close(p);
	printf("left %s\n", left > 0 ? "often" : "never");
	return 0;
}
