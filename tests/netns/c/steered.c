/* Members of a group with a steering program. Reads commands line by line from standard input.
   Usage: steered DEVICE GROUP.

     open PROGRAM        a new handle joins, and reads once, so that it has its share; prints
                         "opened N" or "refused: ..."; - stands for no program and no mode
     ring BYTES          size of the rings of handles that are opened from now on
     keep                handles that are refused stay open from now on
     plain               a new handle in no group; prints "opened N"
     filter N TEXT       pcap_setfilter() on handle N
     fanout N PROGRAM    pcap_fanout() on handle N, a member; prints "done" or "refused: ..."
     race N USECONDS FILTER ; PROGRAM
                         pcap_setfilter() on handle N after USECONDS, while pcap_fanout() on handle 0
     race N USECONDS = PROGRAM ; PROGRAM
                         pcap_fanout() on both handles; prints "done" or "refused: ..."
     read N              a thread reads handle N from now on, in blocking mode
     poll N              a thread reads handle N when its descriptor is readable, and waits by epoll
     count N             reads the waiting packets; prints "N has COUNT packets"
     stats N             prints "N: members M counters A B C group A B C": three counters each
     late N              prints "N: late COUNT", or "N: late unknown"
     sum N               prints "N: group R": packets that the group has received
     age N               prints "N: MILLISECONDS ms old": the age of the group's counters
     ask N               pcap_stats() on handle N
     close N             pcap_close() on handle N
     undumpable          prevents other processes of its user from getting its descriptors
     nobody              gives up the user root and all capabilities
     quit */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <pcap/fanout.h>

#define MOST 8

static pcap_t *handles[MOST];
static unsigned long packets[MOST];
static int opened, keeps_refused, ring_bytes;
static const char *device;
static int group;

static void count(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)header;
	(void)bytes;
	++*(unsigned long *)user;
}

static void say(int status, pcap_t *p)
{
	if (status < 0)
		printf("refused: %s\n", pcap_geterr(p));
	else if (status > 0)
		printf("warned: %s\n", pcap_geterr(p));
	else
		puts("done");
}

static void open_member(const char *program)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	pcap_t *p = pcap_create(device, errbuf);
	int status;

	if (p == NULL) {
		printf("pcap_create: %s\n", errbuf);
		exit(1);
	}
	pcap_set_timeout(p, 10);
	pcap_set_immediate_mode(p, 1);
	if (ring_bytes > 0)
		pcap_set_buffer_size(p, ring_bytes);
	status = 0;
	if (program != NULL)
		status = pcap_fanout(p, group, strcmp(program, "-") == 0 ? NULL : program);
	if (status == 0)
		status = pcap_activate(p);
	if (status >= 0)
		status = pcap_setnonblock(p, 1, errbuf) == 0 ? status : -1;
	if (status < 0) {
		printf("refused: %s\n", pcap_geterr(p));
		if (!keeps_refused)
			pcap_close(p);
		return;
	}
	if (status > 0)
		printf("warned: %s\n", pcap_geterr(p));
	handles[opened] = p;
	if (program != NULL)
		(void)pcap_dispatch(p, -1, count, (u_char *)&packets[opened]);
	printf("opened %d\n", opened++);
}

static void set_filter(pcap_t *p, const char *text)
{
	struct bpf_program filter;

	if (pcap_compile(p, &filter, text, 1, PCAP_NETMASK_UNKNOWN) != 0) {
		printf("pcap_compile: %s\n", pcap_geterr(p));
		exit(1);
	}
	say(pcap_setfilter(p, &filter), p);
	pcap_freecode(&filter);
}

/* An action of another thread on a handle, after a delay. */
struct job {
	pcap_t *p;
	useconds_t after;
	const char *program; /* null: `filter` is set instead */
	struct bpf_program filter;
	int status;
};

static void *work(void *argument)
{
	struct job *job = argument;

	usleep(job->after);
	if (job->program != NULL)
		job->status = pcap_fanout(job->p, group, job->program);
	else
		job->status = pcap_setfilter(job->p, &job->filter);
	return NULL;
}

static void race(pcap_t *p, char *text)
{
	struct job job = { .p = p, .after = (useconds_t)atoi(strsep(&text, " ")) };
	char *program = strstr(text, " ; ");
	pthread_t thread;
	int status;

	*program = '\0';
	program += 3;
	if (strncmp(text, "= ", 2) == 0) {
		job.program = text + 2;
	} else if (pcap_compile(p, &job.filter, text, 1, PCAP_NETMASK_UNKNOWN) != 0) {
		printf("pcap_compile: %s\n", pcap_geterr(p));
		exit(1);
	}
	if (pthread_create(&thread, NULL, work, &job) != 0)
		exit(1);
	status = pcap_fanout(handles[0], group, program);
	pthread_join(thread, NULL);
	if (status != 0)
		say(status, handles[0]);
	else
		say(job.status, p);
	if (job.program == NULL)
		pcap_freecode(&job.filter);
}

static void *read_all(void *p)
{
	unsigned long read = 0;

	pcap_loop(p, -1, count, (u_char *)&read);
	return NULL;
}

static void *poll_and_read(void *p)
{
	struct epoll_event event = { .events = EPOLLIN };
	unsigned long read = 0;
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, pcap_get_selectable_fd(p), &event) != 0)
		exit(1);
	do
		epoll_wait(epoll, &event, 1, -1);
	while (pcap_dispatch(p, -1, count, (u_char *)&read) >= 0);
	return NULL;
}

static void start_thread(int n, int nonblocking, void *(*body)(void *))
{
	char errbuf[PCAP_ERRBUF_SIZE];
	pthread_t thread;

	if (pcap_setnonblock(handles[n], nonblocking, errbuf) != 0 ||
	    pthread_create(&thread, NULL, body, handles[n]) != 0)
		puts("failed");
	else
		puts("done");
}

static void count_packets(int n)
{
	int got;

	do {
		usleep(20000);
		got = pcap_dispatch(handles[n], -1, count, (u_char *)&packets[n]);
	} while (got > 0);
	printf("%d has %lu packets\n", n, packets[n]);
}

static void tell(int n)
{
	struct pcap_fanout_stat st = { .size = sizeof st };
	uint32_t wanted = PCAP_FANOUT_STAT_COUNTERS | PCAP_FANOUT_STAT_GROUP_COUNTERS;

	if (pcap_fanout_stats(handles[n], &st) != 0) {
		printf("refused: %s\n", pcap_geterr(handles[n]));
		return;
	}
	if ((st.valid & wanted) != wanted) {
		printf("%d: valid %#x\n", n, st.valid);
		return;
	}
	printf("%d: members %llu counters %lld %lld %lld group %lld %lld %lld\n", n,
	       (unsigned long long)st.members, (long long)st.counters[0], (long long)st.counters[1],
	       (long long)st.counters[2], (long long)st.group_counters[0],
	       (long long)st.group_counters[1], (long long)st.group_counters[2]);
}

static struct pcap_fanout_stat fanout_stats(int n)
{
	struct pcap_fanout_stat st = { .size = sizeof st };

	if (pcap_fanout_stats(handles[n], &st) != 0) {
		printf("pcap_fanout_stats: %s\n", pcap_geterr(handles[n]));
		exit(1);
	}
	return st;
}

static void tell_late(int n)
{
	struct pcap_fanout_stat st = fanout_stats(n);

	if (st.valid & PCAP_FANOUT_STAT_LATE)
		printf("%d: late %llu\n", n, (unsigned long long)st.late);
	else
		printf("%d: late unknown\n", n);
}

static void tell_age(int n)
{
	printf("%d: %llu ms old\n", n, (unsigned long long)fanout_stats(n).group_age_ns / 1000000);
}

static void tell_sum(int n)
{
	struct pcap_fanout_stat st = fanout_stats(n);

	if (st.valid & PCAP_FANOUT_STAT_GROUP_RECEIVED)
		printf("%d: group %llu\n", n, (unsigned long long)st.group_received);
	else
		printf("%d: group unknown\n", n);
}

static void ask(int n)
{
	struct pcap_stat stat;

	say(pcap_stats(handles[n], &stat), handles[n]);
}

static void obey(char *line)
{
	char *word = strsep(&line, " ");
	char *text = line != NULL ? line : "";
	int n = atoi(text);
	char *rest = strchr(text, ' ');

	rest = rest != NULL ? rest + 1 : "";
	if (strcmp(word, "open") == 0)
		open_member(text);
	else if (strcmp(word, "plain") == 0)
		open_member(NULL);
	else if (strcmp(word, "keep") == 0)
		keeps_refused = puts("done") >= 0;
	else if (strcmp(word, "ring") == 0)
		ring_bytes = puts("done") >= 0 ? n : 0;
	else if (strcmp(word, "filter") == 0)
		set_filter(handles[n], rest);
	else if (strcmp(word, "fanout") == 0)
		say(pcap_fanout(handles[n], group, rest), handles[n]);
	else if (strcmp(word, "race") == 0)
		race(handles[n], rest);
	else if (strcmp(word, "read") == 0)
		start_thread(n, 0, read_all);
	else if (strcmp(word, "poll") == 0)
		start_thread(n, 1, poll_and_read);
	else if (strcmp(word, "count") == 0)
		count_packets(n);
	else if (strcmp(word, "stats") == 0)
		tell(n);
	else if (strcmp(word, "sum") == 0)
		tell_sum(n);
	else if (strcmp(word, "late") == 0)
		tell_late(n);
	else if (strcmp(word, "age") == 0)
		tell_age(n);
	else if (strcmp(word, "ask") == 0)
		ask(n);
	else if (strcmp(word, "undumpable") == 0)
		puts(prctl(PR_SET_DUMPABLE, 0) == 0 ? "done" : "failed");
	else if (strcmp(word, "nobody") == 0)
		puts(setgid(65534) == 0 && setuid(65534) == 0 ? "done" : "failed");
	else if (strcmp(word, "close") == 0) {
		pcap_close(handles[n]);
		puts("done");
	} else if (strcmp(word, "quit") == 0)
		exit(0);
}

int main(int argc, char **argv)
{
	char line[4096];

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc != 3)
		return 2;
	device = argv[1];
	group = atoi(argv[2]);
	puts("ready");
	while (fgets(line, sizeof line, stdin) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		obey(line);
	}
	return 0;
}
