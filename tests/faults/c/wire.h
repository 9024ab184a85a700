/* The wire of an operation: sends frames, and counts how many of them a handle reads. */
#ifndef wire_h
#define wire_h

#include <arpa/inet.h>
#include <net/if.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <pcap/pcap.h>

/* The ethertypes for experiments (IEEE 802): no host answers them. */
enum { OURS = 0x88b5, OTHERS = 0x88b6, FRAMES = 5, READ_MS = 1000 };

struct seen {
	int ours, others;
};

/* A socket that only sends. Its protocol is 0, so it receives nothing. */
static int sender = -1;

static inline void open_sender(const char *device)
{
	struct sockaddr_ll address = { .sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex(device) };

	sender = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (sender < 0 || bind(sender, (struct sockaddr *)&address, sizeof(address)) != 0) {
		perror("the sender");
		exit(2);
	}
}

static inline void send_frames(int type, int count)
{
	/* Broadcast. */
	unsigned char frame[60] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1 };

	frame[12] = (unsigned char)(type >> 8);
	frame[13] = (unsigned char)type;
	while (count-- > 0) {
		if (send(sender, frame, sizeof(frame), 0) != (ssize_t)sizeof(frame)) {
			perror("send");
			exit(2);
		}
	}
}

static inline void count_frame(u_char *seen, const struct pcap_pkthdr *header, const u_char *bytes)
{
	int ours = header->caplen > 13 && (bytes[12] << 8 | bytes[13]) == OURS;

	((struct seen *)seen)->ours += ours;
	((struct seen *)seen)->others += !ours;
}

static inline int await_frames(pcap_t *p, int milliseconds)
{
	struct pollfd ready = { .fd = pcap_get_selectable_fd(p), .events = POLLIN };

	return poll(&ready, 1, milliseconds) > 0;
}

/* Waits until sent frames have arrived, because a loaded machine may deliver them late. Does not
   ask the handle for its counters, because this would be another call of the tested library. */
static inline void settle(pcap_t *p)
{
	const struct timespec pause = { .tv_nsec = 10000000 };

	await_frames(p, READ_MS);
	nanosleep(&pause, NULL);
}

static inline long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Reads until FRAMES frames of the type OURS have come, or READ_MS milliseconds have passed.
   Also counts the other frames that come in this time. Calls pcap_dispatch() only if there are
   packets, because on a handle that receives nothing the call would never return. */
static inline void read_frames(pcap_t *p, struct seen *seen)
{
	long end = now_ms() + READ_MS;

	while (await_frames(p, seen->ours < FRAMES ? 50 : 0) || seen->ours < FRAMES) {
		if (now_ms() > end)
			return;
		if (await_frames(p, 0) && pcap_dispatch(p, -1, count_frame, (u_char *)seen) == PCAP_ERROR)
			return;
	}
}

#endif
