/* Shared by the C programs: devices, frames of known kinds, and functions that wait for the frames.
   */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <pcap/pcap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* NUMBERED is an ethertype for experiments (IEEE 802), which no host answers. TIMEOUT is short, so
   that the kernel passes on blocks soon. After SETTLED ms the kernel has passed on all blocks. */
enum {
	NUMBERED = 0x88b5,
	HEADER = 14,
	SMALLEST = 60,
	TIMEOUT = 10,
	SETTLED = 60,
	PATIENCE_SECONDS = 60,
	LIMIT_SECONDS = 150,
	HASTY_SECONDS = 20
};

/* The wire's ends: frames leave at NEAR and arrive at FAR. */
static const char *near = "va", *far = "vb";

/* How long to wait for packets: FANPCAP_PATIENCE seconds, where packets are known not to come. */
static inline double patience(void)
{
	const char *given = getenv("FANPCAP_PATIENCE");
	return given ? atof(given) : PATIENCE_SECONDS;
}

/* Milliseconds after which the packets that have come can be read. */
static inline long settled(void)
{
	const char *given = getenv("FANPCAP_SETTLED");
	return given ? atol(given) : SETTLED;
}

/* Whether packets count as received when they are read, so that no counter says that they have
   come. */
static inline int is_uncounted(void)
{
	return getenv("FANPCAP_UNCOUNTED") != NULL;
}

/* Ends a program that hangs. Flushes each line, so that the output before the end is not lost. */
__attribute__((constructor)) static void limit(void)
{
	alarm(getenv("FANPCAP_PATIENCE") ? HASTY_SECONDS : LIMIT_SECONDS);
	setvbuf(stdout, NULL, _IOLBF, 0);
	(void)near;
	(void)far;
}

static inline void fail(const char *call, const char *why)
{
	printf("%s: %s\n", call, why);
	exit(1);
}

static inline const char *yes(int condition)
{
	return condition ? "yes" : "no";
}

static inline double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static inline void sleep_ms(long ms)
{
	double end = now() + (double)ms / 1e3;
	/* Signals end a sleep early. */
	while (now() < end)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/* Handles. `version` is the version of the packet socket's ring: 2 with immediate mode, 3 without.
   */

static inline pcap_t *created(const char *device, int version)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	pcap_t *p = pcap_create(device, errbuf);
	if (!p)
		fail("pcap_create", errbuf);
	pcap_set_timeout(p, TIMEOUT);
	pcap_set_immediate_mode(p, version == 2);
	return p;
}

static inline pcap_t *activated(pcap_t *p)
{
	if (pcap_activate(p) < 0)
		fail("pcap_activate", pcap_geterr(p));
	return p;
}

static inline pcap_t *opened(const char *device, int version)
{
	return activated(created(device, version));
}

/* Compiles and sets a filter, and prints the result. Closes the handle if that fails. */
static inline int tried(pcap_t *p, const char *expression)
{
	struct bpf_program program;
	if (pcap_compile(p, &program, expression, 1, PCAP_NETMASK_UNKNOWN) != 0) {
		printf(" %s\n", pcap_geterr(p));
		pcap_close(p);
		return 0;
	}
	printf(" %d", pcap_setfilter(p, &program));
	pcap_freecode(&program);
	return 1;
}

static inline void filter(pcap_t *p, const char *text)
{
	struct bpf_program program;
	if (pcap_compile(p, &program, text, 1, PCAP_NETMASK_UNKNOWN) != 0)
		fail("pcap_compile", pcap_geterr(p));
	if (pcap_setfilter(p, &program) != 0)
		fail("pcap_setfilter", pcap_geterr(p));
	pcap_freecode(&program);
}

static inline unsigned received(pcap_t *p)
{
	struct pcap_stat stat;
	if (pcap_stats(p, &stat) != 0)
		fail("pcap_stats", pcap_geterr(p));
	return stat.ps_recv;
}

/* When to give up waiting for packets that are counted as received. */
static inline double counted_until(void)
{
	return now() + (is_uncounted() ? 0 : patience());
}

/* Waits until the handle has received COUNT packets since its activation, and can read all of them.
   Gives up after some seconds, or at once if packets are not counted. */
static inline void settle(pcap_t *p, unsigned count)
{
	double end = counted_until();
	while (received(p) < count && now() < end)
		sleep_ms(1);
	if (received(p) < count && !is_uncounted())
		printf("%u have come, not %u\n", received(p), count);
	sleep_ms(settled());
}

/* Frames. */

/* Opens a socket that sends on DEVICE and receives nothing. */
static inline int port_of(const char *device)
{
	struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex(device) };
	int fd = socket(AF_PACKET, SOCK_RAW, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&to, sizeof to) != 0)
		fail(device, strerror(errno));
	return fd;
}

static inline void send_frame(int port, const void *frame, size_t size)
{
	if (send(port, frame, size, 0) != (ssize_t)size)
		fail("send", strerror(errno));
}

/* Writes an Ethernet header, to FAR from NEAR. Returns where the payload begins. */
static inline unsigned char *header(unsigned char *frame, unsigned type)
{
	static const unsigned char ends[12] = { 2, 0, 0, 0, 0, 0x0b, 2, 0, 0, 0, 0, 0x0a };
	memcpy(frame, ends, sizeof ends);
	frame[12] = (unsigned char)(type >> 8);
	frame[13] = (unsigned char)type;
	return frame + HEADER;
}

static inline unsigned char *put32(unsigned char *at, unsigned number)
{
	number = htonl(number);
	return (unsigned char *)memcpy(at, &number, sizeof number) + sizeof number;
}

/* Sends COUNT frames of SIZE bytes, numbered from FIRST. The bytes after the number differ from
   frame to frame. */
static inline void send_sized(int port, unsigned first, unsigned count, size_t size)
{
	unsigned char frame[65536];
	for (unsigned number = first; number < first + count; number++) {
		unsigned char *payload = put32(header(frame, NUMBERED), number);
		for (unsigned char *at = payload; at < frame + size; at++)
			*at = (unsigned char)(number + (unsigned)(at - payload));
		send_frame(port, frame, size);
	}
}

static inline void send_numbered(int port, unsigned first, unsigned count)
{
	send_sized(port, first, count, SMALLEST);
}

/* Writes an IPv4 UDP datagram in an Ethernet frame. Returns its size. */
static inline size_t datagram(unsigned char *frame, unsigned from_port, unsigned to_port, size_t payload)
{
	static const unsigned char ip[20] = { 0x45, 0, 0, 0, 0, 1, 0, 0, 64, 17, 0, 0,
	                                      192, 0, 2, 1, 192, 0, 2, 9 };
	size_t length = sizeof ip + 8 + payload;
	unsigned char *at = header(frame, 0x0800);
	memcpy(at, ip, sizeof ip);
	at[2] = (unsigned char)(length >> 8);
	at[3] = (unsigned char)length;
	put32(at + sizeof ip, from_port << 16 | to_port);
	put32(at + sizeof ip + 4, (unsigned)(8 + payload) << 16);
	memset(at + sizeof ip + 8, 0x5a, payload);
	return HEADER + length;
}

static inline unsigned number_of(const u_char *bytes)
{
	unsigned number;
	memcpy(&number, bytes + HEADER, sizeof number);
	return ntohl(number);
}

/* Sends frames until the handle has received COUNT, because a link that has just come up drops the
   first frames. Gives up after some seconds if packets are not counted. */
static inline void send_until(int port, pcap_t *p, unsigned count)
{
	static const unsigned char frame[SMALLEST] = { 2, 0, 0, 0, 0, 0x0b };
	double end = now() + patience();
	while (received(p) < count && (now() < end || !is_uncounted())) {
		(void)!send(port, frame, sizeof frame, 0);
		for (int ms = 0; ms < 50 && received(p) < count; ms++)
			sleep_ms(1);
	}
}

/* Runs a command, and waits until ip shows DEVICE in the state STATE. */
static inline void change(const char *command, const char *device, const char *state)
{
	char question[128];
	snprintf(question, sizeof question, "ip -o link show dev %s | grep -q 'state %s'", device, state);
	if (system(command) != 0)
		printf("%s failed\n", command);
	for (int i = 0; i < 500 && system(question) != 0; i++)
		sleep_ms(10);
}

/* Sets a device up or down, by a socket that is already open. */
static inline void set_up_by(int control, const char *device, int up)
{
	struct ifreq request = { 0 };
	strcpy(request.ifr_name, device);
	ioctl(control, SIOCGIFFLAGS, &request);
	request.ifr_flags = (short)(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
	if (ioctl(control, SIOCSIFFLAGS, &request) != 0)
		fail("SIOCSIFFLAGS", strerror(errno));
}

static inline void set_up(const char *device, int up)
{
	int control = socket(AF_INET, SOCK_DGRAM, 0);
	set_up_by(control, device, up);
	close(control);
}

/* Reading. */

/* A callback that prints the frame's number, if the captured part contains it. */
static inline void print_number(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	if (header->caplen >= HEADER + 4)
		printf(" %u", number_of(bytes));
	else
		printf(" cut to %u", header->caplen);
}

/* A callback that prints the frame's size. */
static inline void print_size(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	(void)bytes;
	printf(" %u", header->len);
}

/* A callback that counts packets. */
static inline void count_packet(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)header;
	(void)bytes;
	++*(unsigned *)user;
}

/* Reads all queued packets without waiting, and returns their number. Callers call settle() first.
   */
static inline int drain(pcap_t *p, pcap_handler callback, void *user)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	int blocking = pcap_getnonblock(p, errbuf) == 0, count = 0, rc;
	if (blocking)
		pcap_setnonblock(p, 1, errbuf);
	/* After a block in which no packet passed the filter, another block may follow. */
	for (int idle = 0; idle < 3; idle += rc == 0) {
		if ((rc = pcap_dispatch(p, -1, callback, user)) < 0) {
			printf("pcap_dispatch: %d %s\n", rc, pcap_geterr(p));
			break;
		}
		count += rc;
	}
	if (blocking)
		pcap_setnonblock(p, 0, errbuf);
	return count;
}

/* Whether the handle's descriptor becomes readable within MS. */
static inline int readable(pcap_t *p, int ms)
{
	struct pollfd fd = { .fd = pcap_get_selectable_fd(p), .events = POLLIN };
	return poll(&fd, 1, ms) == 1 && fd.revents == POLLIN;
}

static inline void print_bytes(const u_char *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		printf("%02x", bytes[i]);
}

static inline void print_stats(pcap_t *p)
{
	struct pcap_stat stat = { 0 };
	int rc = pcap_stats(p, &stat);
	printf("stats %d: received %u, dropped %u, by the device %u\n", rc, stat.ps_recv, stat.ps_drop,
	       stat.ps_ifdrop);
}
