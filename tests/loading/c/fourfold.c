/* Four threads capture, each with its own handles, which it opens one after another. Usage:
   fourfold DEVICE FAR. In each round, sends FRAMES frames from FAR, and prints how many packets
   the threads have read together. The settings decide whether the threads share the packets or
   each thread reads all packets. */
#include <pcap/pcap.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 4, ROUNDS = 4, FRAMES = 400, LIMIT_SECONDS = 60 };

static pthread_barrier_t opened, sent;
static atomic_uint packets;
static atomic_int stopped;
static pcap_t *handles[THREADS];
static const char *device;

static void fail(const char *call, const char *why)
{
	fprintf(stderr, "%s: %s\n", call, why);
	exit(1);
}

static pcap_t *open_handle(const char *name)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	pcap_t *p = pcap_create(name, errbuf);

	if (p == NULL)
		fail("pcap_create", errbuf);
	pcap_set_snaplen(p, 128);
	pcap_set_timeout(p, 20);
	pcap_set_buffer_size(p, 1 << 20);
	if (pcap_activate(p) < 0)
		fail("pcap_activate", pcap_geterr(p));
	return p;
}

static void filter(pcap_t *p)
{
	struct bpf_program program;

	if (pcap_compile(p, &program, "ether proto 0x88b5", 1, PCAP_NETMASK_UNKNOWN) != 0)
		fail("pcap_compile", pcap_geterr(p));
	if (pcap_setfilter(p, &program) != 0)
		fail("pcap_setfilter", pcap_geterr(p));
	pcap_freecode(&program);
}

static void count(u_char *own, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)header;
	(void)bytes;
	++*(unsigned *)own;
}

static void *capture(void *place)
{
	for (int round = 0; round < ROUNDS; round++) {
		struct pcap_stat stat;
		unsigned own = 0;
		pcap_t *p = open_handle(device);

		filter(p);
		*(pcap_t **)place = p;
		pthread_barrier_wait(&opened);
		while (!atomic_load(&stopped)) {
			unsigned before = own;

			if (pcap_dispatch(p, -1, count, (u_char *)&own) == PCAP_ERROR)
				fail("pcap_dispatch", pcap_geterr(p));
			atomic_fetch_add(&packets, own - before);
		}
		if (pcap_stats(p, &stat) != 0)
			fail("pcap_stats", pcap_geterr(p));
		pthread_barrier_wait(&sent);
		pcap_close(p);
	}
	return place;
}

/* Waits until the threads have read THREADS times FRAMES packets. If the threads share the
   packets, they read only FRAMES packets: then returns after a second without further packets. */
static unsigned await_packets(void)
{
	const struct timespec pause = { .tv_nsec = 10000000 };
	time_t end = time(NULL) + LIMIT_SECONDS;
	time_t shared = 0;

	while (atomic_load(&packets) < THREADS * FRAMES && time(NULL) < end) {
		unsigned now = atomic_load(&packets);

		if (now != FRAMES)
			shared = 0;
		else if (shared == 0)
			shared = time(NULL);
		else if (time(NULL) > shared + 1)
			break;
		nanosleep(&pause, NULL);
	}
	return atomic_load(&packets);
}

static void send_frames(pcap_t *far)
{
	unsigned char frame[60] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5 };

	for (int i = 0; i < FRAMES; i++) {
		if (pcap_inject(far, frame, sizeof(frame)) != (int)sizeof(frame))
			fail("pcap_inject", pcap_geterr(far));
	}
}

static void run_round(pcap_t *far)
{
	unsigned read;

	atomic_store(&packets, 0);
	atomic_store(&stopped, 0);
	pthread_barrier_wait(&opened);
	send_frames(far);
	read = await_packets();
	atomic_store(&stopped, 1);
	for (int i = 0; i < THREADS; i++)
		pcap_breakloop(handles[i]);
	pthread_barrier_wait(&sent);
	printf("%u packets\n", read);
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	pcap_t *far;

	if (argc != 3)
		fail("usage", "fourfold DEVICE FAR");
	device = argv[1];
	far = open_handle(argv[2]);
	pthread_barrier_init(&opened, NULL, THREADS + 1);
	pthread_barrier_init(&sent, NULL, THREADS + 1);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, capture, &handles[i]);
	for (int round = 0; round < ROUNDS; round++)
		run_round(far);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pcap_close(far);
	return 0;
}
