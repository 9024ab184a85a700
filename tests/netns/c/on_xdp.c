/* A program on vb that sends frames to itself from va. Usage: on_xdp WHAT. Prints one line with
   the result of WHAT, or with the reason why WHAT failed. */
#define _GNU_SOURCE
#include "wires.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { TIMEOUT_MS = 100, FEW = 20, MANY = 5000, NOBODY = 65534, LONG = 600, TRIES = 5, HANG = 30 };

static int port;

static pcap_t *open_handle(int immediate, int snaplen, int precision)
{
	pcap_t *p = created("vb");
	int status;

	pcap_set_timeout(p, TIMEOUT_MS);
	pcap_set_immediate_mode(p, immediate);
	pcap_set_promisc(p, 1);
	if (snaplen > 0)
		pcap_set_snaplen(p, snaplen);
	pcap_set_tstamp_precision(p, precision);
	status = pcap_activate(p);
	if (status != 0)
		fail(pcap_statustostr(status), pcap_geterr(p));
	return p;
}

static pcap_t *plain(void)
{
	return open_handle(0, 0, PCAP_TSTAMP_PRECISION_MICRO);
}

static void send_one(int tag, int type, size_t len)
{
	unsigned char frame[LONG] = { 2, 0, 0, 0, 0, 0x0b, 2, 0, 0, 0, 0, 0x0a };

	frame[12] = (unsigned char)(type >> 8);
	frame[13] = (unsigned char)type;
	frame[TAG_AT] = (unsigned char)tag;
	if (send(port, frame, len, 0) != (ssize_t)len)
		fail("send", strerror(errno));
}

static void send_many(int count, int type, size_t len)
{
	for (int i = 0; i < count; i++)
		send_one(i, type, len);
}

/* Runs a shell command. */
static void run(const char *command)
{
	if (system(command) != 0)
		fail("sh", command);
}

/* Waits until a link is up, because a link that has just come up drops frames at first. */
#define UNTIL_UP(device) " && until ip link show " device " | grep -q 'state UP'; do sleep 0.05; done"

static int dispatch(pcap_t *p, unsigned *count)
{
	int status = pcap_dispatch(p, -1, count_packet, (u_char *)count);

	if (status < 0)
		fail("pcap_dispatch", pcap_geterr(p));
	return status;
}

/* Reads until COUNT packets have come, or until no packet has come for a second. */
static unsigned read_all(pcap_t *p, unsigned count)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	unsigned found = 0;
	double last = now();

	/* In blocking mode a read would wait for a packet for ever, as in the system's libpcap. */
	if (pcap_setnonblock(p, 1, errbuf) != 0)
		fail("pcap_setnonblock", errbuf);

	while (found < count) {
		/* Looks at the clock before the read, because on a busy machine a second may
		   pass before the read. Then packets may be there that the read has not found
		   yet. */
		int is_over = now() >= last + 1;

		if (dispatch(p, &found) > 0)
			last = now();
		else if (is_over)
			break;
	}
	return found;
}

/* The times at which this process or a child sent a packet, and at which the packet was read. On
   a busy machine some packets wait for the processor. If the library has an error, many packets
   wait. */
struct trip {
	double sent, read;
};

static struct trip *trips(void)
{
	void *memory = mmap(NULL, sizeof(struct trip) * MANY, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		fail("mmap", strerror(errno));
	return memory;
}

static void send_noted(struct trip *trip, int tag)
{
	trip->sent = now();
	send_tag(port, tag);
}

/* Whether more than a fifth of the packets waited longer than LONGEST seconds. */
static const char *are_late(const struct trip *trips, unsigned count, double longest)
{
	unsigned late = 0;

	for (unsigned i = 0; i < count; i++)
		late += trips[i].read - trips[i].sent > longest;
	return late > count / 5 ? "yes" : "no";
}

/* A program that polls without a timeout. */
static void polled(pcap_t *p)
{
	struct pollfd fd = { .fd = pcap_get_selectable_fd(p), .events = POLLIN };
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	struct trip *all = trips();
	unsigned count = 0, wakes = 0;

	if (pcap_fileno(p) != fd.fd)
		fail("pcap_fileno", "is another descriptor");
	if (pcap_setnonblock(p, 1, errbuf) != 0)
		fail("pcap_setnonblock", errbuf);
	if (fork() == 0) {
		for (int i = 0; i < FEW; i++) {
			sleep_ms(20);
			send_noted(&all[i], i);
		}
		_exit(0);
	}
	while (count < FEW) {
		unsigned before = count;

		if (poll(&fd, 1, -1) != 1)
			fail("poll", strerror(errno));
		wakes++;
		dispatch(p, &count);
		while (before < count && before < FEW)
			all[before++].read = now();
	}
	wait(NULL);
	printf("%u packets, late %s, spins %s\n", count, are_late(all, FEW, .06), wakes > 10 * FEW ? "yes" : "no");
}

static void nonblock(pcap_t *p)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	unsigned count = 0;
	double begin = now();

	if (pcap_setnonblock(p, 1, errbuf) != 0)
		fail("pcap_setnonblock", errbuf);
	for (int i = 0; i < 100; i++)
		dispatch(p, &count);
	/* No packet has come. If the reads waited, each read would take the whole timeout. */
	if (now() - begin > 100 * TIMEOUT_MS / 1e3 / 2)
		fail("nonblock", "it waits");
	send_many(FEW, OURS, SMALLEST);
	printf("%u then %u packets\n", count, read_all(p, FEW));
}

static void inject(pcap_t *p)
{
	unsigned char frame[SMALLEST] = { 2, 0, 0, 0, 0, 0x0a, 2, 0, 0, 0, 0, 0x0b, 0x88, 0xb5 };
	unsigned char got[2048];
	struct sockaddr_ll from, to = { .sll_family = AF_PACKET, .sll_protocol = htons(3),
					.sll_ifindex = (int)if_nametoindex("va") };
	socklen_t len = sizeof(from);
	int ear = socket(AF_PACKET, SOCK_RAW, 0), same = 0;

	if (ear < 0 || bind(ear, (struct sockaddr *)&to, sizeof(to)) != 0)
		fail("va", strerror(errno));
	if (pcap_inject(p, frame, sizeof(frame)) != (int)sizeof(frame))
		fail("pcap_inject", pcap_geterr(p));
	if (pcap_sendpacket(p, frame, sizeof(frame)) != 0)
		fail("pcap_sendpacket", pcap_geterr(p));
	for (int i = 0; i < 2; i++) {
		ssize_t size = recvfrom(ear, got, sizeof(got), 0, (struct sockaddr *)&from, &len);

		same += size == SMALLEST && memcmp(got, frame, SMALLEST) == 0 && from.sll_protocol == htons(OURS);
	}
	if (pcap_inject(p, frame, 0) != -1 || pcap_sendpacket(p, frame, 0) != -1)
		fail("inject", "nothing was sent, it says");
	if (pcap_inject(p, malloc(70000), 70000) != -1)
		fail("inject", "too long a frame was sent, it says");
	printf("%d of 2 sent, then %s\n", same, pcap_geterr(p));
}

/* Sets filters before the first packet, between packets, and after the process has given up its
   privileges. */
static void filtered(pcap_t *p)
{
	unsigned found[3];

	set_filter(p, "ether proto 0x88b5");
	for (int i = 0; i < 3; i++) {
		send_many(FEW, OURS, SMALLEST);
		send_many(2 * FEW, OTHERS, SMALLEST);
		if (i == 1)
			set_filter(p, "ether proto 0x88b6");
		found[i] = read_all(p, UINT32_MAX);
		if (i == 1 && setresuid(NOBODY, NOBODY, NOBODY) != 0)
			fail("setresuid", strerror(errno));
		if (i == 1)
			set_filter(p, "ether[14] < 3");
	}
	printf("%u, %u, %u packets\n", found[0], found[1], found[2]);
}

/* The kernel filters what the host sends; without privileges, the reader does. */
static void outgoing(pcap_t *p)
{
	struct pcap_stat stat;
	unsigned found[2];

	port = port_of("vb");
	for (int i = 0; i < 2; i++) {
		set_filter(p, "ether proto 0x88b5");
		send_many(FEW, OURS, SMALLEST);
		send_many(MANY, OTHERS, SMALLEST);
		found[i] = read_all(p, UINT32_MAX);
		if (i == 0 && setresuid(NOBODY, NOBODY, NOBODY) != 0)
			fail("setresuid", strerror(errno));
	}
	if (pcap_stats(p, &stat) != 0)
		fail("pcap_stats", pcap_geterr(p));
	printf("%u, %u packets, %u received, %u dropped\n", found[0], found[1], stat.ps_recv, stat.ps_drop);
}

static void counted(pcap_t *p)
{
	struct pcap_stat stat;
	unsigned found, before;

	set_filter(p, "ether proto 0x88b5");
	send_many(MANY, OURS, SMALLEST);
	send_many(FEW, OTHERS, SMALLEST);
	await_received(p, NULL, MANY);
	before = received(p);
	found = read_all(p, MANY);
	if (pcap_stats(p, &stat) != 0)
		fail("pcap_stats", pcap_geterr(p));
	printf("%u received before, %u read, %u received, %u dropped\n", before, found, stat.ps_recv,
	       stat.ps_drop);
}

static void full(pcap_t *p)
{
	enum { TOO_MANY = 400000 };
	struct pcap_stat stat;
	unsigned found;

	for (int i = 0; i < TOO_MANY / MANY; i++)
		send_many(MANY, OURS, LONG);
	found = read_all(p, UINT32_MAX);
	if (pcap_stats(p, &stat) != 0)
		fail("pcap_stats", pcap_geterr(p));
	printf("lost %s, sum %s\n", stat.ps_drop > 0 ? "some" : "none",
	       stat.ps_recv == TOO_MANY && found + stat.ps_drop == TOO_MANY ? "right" : "wrong");
}

static pcap_t *broken;
static volatile unsigned had;

/* Breaks the loop, but only after the packets have been read, which may take longer than a
   second on a busy machine. */
static void on_alarm(int signal)
{
	(void)signal;
	if (had < FEW)
		alarm(1);
	else
		pcap_breakloop(broken);
}

static void broken_loop(pcap_t *p)
{
	int status;

	broken = p;
	signal(SIGALRM, on_alarm);
	send_many(FEW, OURS, SMALLEST);
	alarm(1);
	status = pcap_loop(p, -1, count_packet, (u_char *)&had);
	printf("%d after %u packets\n", status, had);
}

static void waits(pcap_t *p)
{
	struct pcap_pkthdr *header;
	const u_char *data;
	struct trip *all = trips();
	int status = 1, before = 0;

	for (int i = 0; i < TRIES && status == 1; i++) {
		if (fork() == 0) {
			sleep_ms(200);
			send_noted(&all[i], i);
			_exit(0);
		}
		status = pcap_next_ex(p, &header, &data);
		all[i].read = now();
		wait(NULL);
		before += all[i].read < all[i].sent;
	}
	printf("%d, %d before, late %s\n", status, before, are_late(all, TRIES, .25));
}

/* The time at which each packet was sent, in seconds since 1970. */
static double sent_at[MANY];

static double now_since_1970(void)
{
	struct timespec time;

	clock_gettime(CLOCK_REALTIME, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Counts of all packets and of wrong packets. The time stamp of an early packet is earlier than
   the time at which the packet was sent. The time stamp of a late packet is later than the time
   of reading. */
struct seen {
	unsigned count, late, early, backwards, wrong;
	unsigned caplen, len;
	double last;
	int is_nano;
};

static void look(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	struct seen *seen = (struct seen *)user;
	double at = (double)header->ts.tv_sec + (double)header->ts.tv_usec / (seen->is_nano ? 1e9 : 1e6);
	double here = now_since_1970();

	seen->early += at < sent_at[seen->count] - .001;
	seen->late += at > here + .001;
	seen->backwards += at < seen->last;
	seen->last = at;
	seen->wrong += header->caplen != seen->caplen || header->len != seen->len ||
		       bytes[TAG_AT] != (unsigned char)seen->count;
	seen->count++;
}

static void stamped(pcap_t *p, unsigned caplen, int is_nano)
{
	struct seen seen = { .caplen = caplen, .len = LONG, .is_nano = is_nano };
	double end = now() + HANG;

	for (int i = 0; i < MANY; i++) {
		sent_at[i] = now_since_1970();
		send_one(i, OURS, LONG);
	}
	while (seen.count < MANY && now() < end)
		if (pcap_dispatch(p, -1, look, (u_char *)&seen) < 0)
			fail("pcap_dispatch", pcap_geterr(p));
	printf("%u packets, %u late, %u early, %u backwards, %u wrong\n", seen.count, seen.late, seen.early,
	       seen.backwards, seen.wrong);
}

/* Sends one packet at a time. Each packet must be readable at once. */
static void immediate(pcap_t *p)
{
	struct trip *all = trips();
	unsigned count = 0;

	for (int i = 0; i < 50; i++) {
		sleep_ms(i % 7);
		send_noted(&all[i], i);
		while (dispatch(p, &count) == 0)
			;
		all[i].read = now();
	}
	printf("%u packets, late %s\n", count, are_late(all, 50, .05));
}

static void directed(pcap_t *p)
{
	unsigned char frame[SMALLEST] = { 2, 0, 0, 0, 0, 0x0a, 2, 0, 0, 0, 0, 0x0b, 0x88, 0xb6 };
	const pcap_direction_t directions[] = { PCAP_D_INOUT, PCAP_D_IN, PCAP_D_OUT };
	int back = port_of("vb");

	for (int i = 0; i < 3; i++) {
		if (pcap_setdirection(p, directions[i]) != 0)
			fail("pcap_setdirection", pcap_geterr(p));
		send_many(FEW, OURS, SMALLEST);
		if (send(back, frame, sizeof(frame), 0) != SMALLEST)
			fail("send", strerror(errno));
		printf("%u%s", read_all(p, UINT32_MAX), i < 2 ? ", " : " packets\n");
	}
}

static void downed(pcap_t *p)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	unsigned count = 0;
	int status = 0;
	double end = now() + 2;

	run("ip link set vb down");
	if (pcap_setnonblock(p, 1, errbuf) != 0)
		fail("pcap_setnonblock", errbuf);
	while (now() < end && status >= 0)
		status = pcap_dispatch(p, -1, count_packet, (u_char *)&count);
	run("ip link set vb up" UNTIL_UP("vb") UNTIL_UP("va"));
	printf("%d, ", status);
	send_many(FEW, OURS, SMALLEST);
	printf("%u packets\n", read_all(p, FEW));
}

/* The device gets another name, is moved, and is removed. */
static void gone(pcap_t *p)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	unsigned count = 0, found;
	int status = 0;
	double end;

	if (pcap_setnonblock(p, 1, errbuf) != 0)
		fail("pcap_setnonblock", errbuf);
	run("ip link set vb down && ip link set vb name vc && ip link set vc up" UNTIL_UP("vc") UNTIL_UP("va"));
	for (end = now() + .5; now() < end;)
		dispatch(p, &count);
	send_many(FEW, OURS, SMALLEST);
	found = read_all(p, FEW);
	/* The device is removed while the handle is read. */
	if (system("ip link del va &") != 0)
		fail("ip", "link del va");
	for (end = now() + HANG; now() < end && status >= 0;)
		status = pcap_dispatch(p, -1, count_packet, (u_char *)&count);
	printf("%u packets, then %s\n", found, pcap_geterr(p));
}

/* A daemon: the process that opens the handle ends, and its child reads the packets. */
static void forked(void)
{
	unsigned found = 0;
	int ends[2];

	if (pipe(ends) != 0)
		fail("pipe", strerror(errno));
	if (fork() == 0) {
		pcap_t *p = plain();

		set_filter(p, "ether proto 0x88b5");
		if (fork() > 0)
			_exit(0);
		/* The parent's end must not end the member. */
		sleep_ms(300);
		send_many(MANY, OURS, SMALLEST);
		send_many(FEW, OTHERS, SMALLEST);
		found = read_all(p, MANY);
		if (write(ends[1], &found, sizeof(found)) != sizeof(found))
			fail("write", strerror(errno));
		_exit(0);
	}
	close(ends[1]);
	wait(NULL);
	if (read(ends[0], &found, sizeof(found)) != sizeof(found))
		fail("read", "the child has said nothing");
	printf("%u packets\n", found);
}

/* Parent and child both read the packets. At least one of them must get each packet. Then only the
   parent reads. */
static void both(pcap_t *p)
{
	unsigned sent = 0, found = 0, childs;
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	int ends[2];
	double end;
	pid_t child;

	if (pcap_setnonblock(p, 1, errbuf) != 0 || pipe(ends) != 0)
		fail("pcap_setnonblock", errbuf);
	child = fork();
	end = now() + 1;
	for (int i = 0; now() < end; i++) {
		if (child != 0 && i % 100 == 0) {
			send_many(100, OURS, LONG);
			sent += 100;
		}
		dispatch(p, &found);
	}
	if (child == 0) {
		if (write(ends[1], &found, sizeof(found)) != sizeof(found))
			fail("write", strerror(errno));
		_exit(0);
	}
	waitpid(child, NULL, 0);
	if (read(ends[0], &childs, sizeof(childs)) != sizeof(childs))
		fail("read", "the child has said nothing");
	found += childs + read_all(p, UINT32_MAX);
	send_many(MANY, OURS, LONG);
	printf("all %s, then %u packets\n", found >= sent ? "read" : "not read", read_all(p, UINT32_MAX));
}

/* A child closes its copy of the handle. The parent reads on, and another child's close changes
   nothing either. */
static void childs_close(pcap_t *p)
{
	unsigned found = 0;

	set_filter(p, "ether proto 0x88b5");
	for (int i = 0; i < 2; i++) {
		pid_t child;

		send_many(FEW, OURS, SMALLEST);
		found += read_all(p, FEW);
		fflush(stdout);
		child = fork();
		if (child == 0) {
			pcap_close(p);
			_exit(0);
		}
		waitpid(child, NULL, 0);
	}
	send_many(MANY, OURS, SMALLEST);
	printf("%u packets, then %u\n", found, read_all(p, MANY));
}

/* A program that polls without a timeout. It must get the reason why no more packets come. */
static void lost(pcap_t *p)
{
	struct pollfd fd = { .fd = pcap_get_selectable_fd(p), .events = POLLIN };
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	unsigned count = 0;

	if (pcap_setnonblock(p, 1, errbuf) != 0)
		fail("pcap_setnonblock", errbuf);
	puts("polling");
	fflush(stdout);
	while (poll(&fd, 1, -1) == 1)
		dispatch(p, &count);
	fail("poll", strerror(errno));
}

int main(int argc, char **argv)
{
	const char *what = argc == 2 ? argv[1] : "";
	const struct {
		const char *name;
		void (*run)(pcap_t *p);
	} tests[] = {
		{ "polled", polled },	   { "nonblock", nonblock },	 { "inject", inject },
		{ "filtered", filtered },  { "outgoing", outgoing },
		{ "counted", counted },	   { "full", full },
		{ "broken", broken_loop }, { "waits", waits },	 { "directed", directed },
		{ "downed", downed },	   { "gone", gone },
		{ "both", both },	   { "lost", lost },	 { "childs_close", childs_close },
	};

	alarm(60);
	port = port_of("va");
	for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++)
		if (strcmp(what, tests[i].name) == 0) {
			pcap_t *p = plain();

			tests[i].run(p);
			pcap_close(p);
			return 0;
		}
	if (strcmp(what, "forked") == 0)
		forked();
	else if (strcmp(what, "immediate") == 0)
		immediate(open_handle(1, 0, PCAP_TSTAMP_PRECISION_MICRO));
	else if (strcmp(what, "stamped") == 0)
		stamped(open_handle(0, 0, PCAP_TSTAMP_PRECISION_MICRO), LONG, 0);
	else if (strcmp(what, "cut") == 0)
		stamped(open_handle(0, 68, PCAP_TSTAMP_PRECISION_NANO), 68, 1);
	else
		fail("usage", "on_xdp WHAT");
	return 0;
}
