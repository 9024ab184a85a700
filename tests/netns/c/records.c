/* A member that records each packet in FILE. FILE is mapped, so that no received packet is lost
   when the member is killed. Usage: records DEVICE GROUP MODE FILE
   [immediate|small|nobody|away|idle|daemon|holds]... Prints "ready" before it reads packets.
   Ends at SIGTERM, or after ten minutes. At SIGUSR2 it sets another filter, which all frames
   pass, and prints "filter N.". With `small`, its ring has 4 MiB. With `nobody`, it gives up all
   privileges before "ready". With `away`, it leaves the device's network namespace before "ready".
   With `idle`, it reads nothing before SIGUSR1. With `daemon`, it prints "child PID." and continues
   in this child; the parent ends at SIGUSR1. With `holds`, it prints "child PID."; this child also
   has the handle, and does nothing. */
#define _GNU_SOURCE
#include "scene.h"
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

/* The stamp of the generator's frames is behind the headers of Ethernet, IPv4 and UDP. */
enum { STAMP = 14 + 20 + 8, MOST = 1 << 22, LIMIT_SECONDS = 600 };

struct records {
	unsigned long count;
	struct {
		unsigned long arrived_us; /* since 1970 */
		unsigned number, waited_us;
	} packets[MOST];
};

static pcap_t *p;
static struct records *records;
static volatile sig_atomic_t stopped, called, filters;

static void stop(int signal)
{
	(void)signal;
	stopped = 1;
	pcap_breakloop(p);
}

static void call(int signal)
{
	(void)signal;
	called = 1;
}

static void filter(int signal)
{
	(void)signal;
	filters++;
	pcap_breakloop(p);
}

static void record(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	unsigned long arrived_us = header->ts.tv_sec * 1000000UL + header->ts.tv_usec, now_us;
	unsigned long count = records->count;
	struct timespec now;

	(void)user;
	if (header->caplen < STAMP + 8 || count == MOST)
		return;
	bytes += STAMP;
	/* Writes the packet's number and time first. So a packet is recorded even if the member is
	   killed in its callback. */
	records->packets[count].number =
		(unsigned)bytes[0] << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
	__atomic_store_n(&records->packets[count].arrived_us, arrived_us, __ATOMIC_RELEASE);
	clock_gettime(CLOCK_REALTIME, &now);
	now_us = now.tv_sec * 1000000UL + now.tv_nsec / 1000;
	records->packets[count].waited_us = now_us > arrived_us ? now_us - arrived_us : 0;
	__atomic_store_n(&records->count, count + 1, __ATOMIC_RELEASE);
}

static void map(const char *file)
{
	int fd = open(file, O_RDWR | O_CREAT, 0600);

	if (fd < 0 || ftruncate(fd, sizeof(*records)) != 0)
		fail("open", file);
	records = mmap(NULL, sizeof(*records), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (records == MAP_FAILED)
		fail("mmap", file);
	close(fd);
}

static void drop_privileges(void)
{
	if (setgroups(0, NULL) != 0 || setgid(65534) != 0 || setuid(65534) != 0)
		fail("setuid", "not permitted");
}

/* Continues in a child. The parent waits for SIGUSR1 and ends, which closes the parent's
   descriptors. */
static void go_on_in_child(void)
{
	pid_t child = fork();

	if (child == 0) {
		alarm(LIMIT_SECONDS);
		return;
	}
	printf("child %d.\n", child);
	while (!called)
		usleep(1000);
	_exit(0);
}

/* Starts a child that has this process's descriptors and memory, and does not use them. */
static void be_held_by_child(void)
{
	pid_t child = fork();

	if (child != 0) {
		printf("child %d.\n", child);
		return;
	}
	signal(SIGTERM, SIG_DFL);
	alarm(LIMIT_SECONDS);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	int is_idle = 0, is_nobody = 0, is_away = 0, is_daemon = 0, is_held = 0, set = 0;
	struct pcap_stat stat;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 5)
		fail("usage", "records DEVICE GROUP MODE FILE [immediate|small|nobody|away|idle|daemon|holds]...");
	alarm(LIMIT_SECONDS);
	p = created(argv[1]);
	pcap_set_snaplen(p, 64);
	pcap_set_buffer_size(p, 32 << 20);
	for (int at = 5; at < argc; at++) {
		if (strcmp(argv[at], "immediate") == 0)
			pcap_set_immediate_mode(p, 1);
		if (strcmp(argv[at], "small") == 0)
			pcap_set_buffer_size(p, 4 << 20);
		is_nobody |= strcmp(argv[at], "nobody") == 0;
		is_idle |= strcmp(argv[at], "idle") == 0;
		is_away |= strcmp(argv[at], "away") == 0;
		is_held |= strcmp(argv[at], "holds") == 0;
		is_daemon |= strcmp(argv[at], "daemon") == 0;
	}
	map(argv[4]);
	if (pcap_fanout(p, atoi(argv[2]), argv[3]) != 0)
		fail("pcap_fanout", pcap_geterr(p));
	if (pcap_activate(p) < 0)
		fail("pcap_activate", pcap_geterr(p));
	signal(SIGUSR1, call);
	signal(SIGUSR2, filter);
	signal(SIGTERM, stop);
	if (is_away && unshare(CLONE_NEWNET) != 0)
		fail("unshare", "not permitted");
	if (is_nobody)
		drop_privileges();
	if (is_daemon)
		go_on_in_child();
	if (is_held)
		be_held_by_child();
	puts("ready");
	while (is_idle && !called && !stopped)
		usleep(1000);
	while (!stopped) {
		while (set < filters) {
			set_filter(p, ++set % 2 != 0 ? "udp" : "ip or ip6");
			printf("filter %d.\n", set);
		}
		if (pcap_dispatch(p, -1, record, NULL) == PCAP_ERROR)
			fail("pcap_dispatch", pcap_geterr(p));
	}
	if (pcap_stats(p, &stat) == 0)
		printf("received %u, dropped %u\n", stat.ps_recv, stat.ps_drop);
	pcap_close(p);
	return 0;
}
