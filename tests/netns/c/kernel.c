/* The checks of the kernel's own test of fanout groups (psock_fanout), made with handles. Usage:
   kernel CASE DEVICE SENDER. Prints "all checks passed" at the end. */
#include "scene.h"
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { GROUP = 7, FRAMES = 40, MEMBERS_MAX = 256, MODES = 6 };

#define CHECK(condition, p) check(condition, #condition, __LINE__, p)

static const char *device, *sender;

static void check(int holds, const char *condition, int line, pcap_t *p)
{
	if (holds)
		return;
	printf("kernel.c:%d: %s: %s\n", line, condition, p != NULL ? pcap_geterr(p) : "");
	exit(1);
}

/* Creates a handle with a small ring and requests a group for it. */
static pcap_t *asking(int group, const char *mode)
{
	pcap_t *p = created(device);

	CHECK(pcap_set_buffer_size(p, 1) == 0, p);
	CHECK(pcap_fanout(p, group, mode) == 0, p);
	return p;
}

static pcap_t *member(int group, const char *mode)
{
	pcap_t *p = asking(group, mode);

	CHECK(pcap_activate(p) == 0, p);
	return p;
}

static void ensure_refused(int group, const char *mode)
{
	pcap_t *p = asking(group, mode);

	if (pcap_activate(p) >= 0) {
		printf("%s joined\n", mode);
		exit(1);
	}
	CHECK(strstr(pcap_geterr(p), mode) != NULL, p);
	CHECK(pcap_fanout_group(p) < 0, p);
	pcap_close(p);
}

/* Only handles with the group's mode and options may join. A refused join must not change the
   group. */
static void others_stay_out(void)
{
	static const char *const modes[MODES] = {
		"hash", "hash+defrag", "hash+rollover", "hash+defrag+rollover", "cpu", "rollover",
	};

	for (int has = 0; has < MODES; has++) {
		pcap_t *first = member(GROUP, modes[has]), *second;

		for (int wants = 0; wants < MODES; wants++) {
			if (wants != has)
				ensure_refused(GROUP, modes[wants]);
		}
		second = member(GROUP, modes[has]);
		CHECK(fanout_stats(first).members == 2, first);
		send_frames(sender, FRAMES);
		await_received(first, second, FRAMES);
		CHECK(received(first) + received(second) == FRAMES, first);
		pcap_close(second);
		pcap_close(first);
	}
}

static void rollover_twice(void)
{
	pcap_t *p = created(device);

	CHECK(pcap_fanout(p, GROUP, "rollover+rollover") == PCAP_ERROR, p);
	CHECK(strstr(pcap_geterr(p), "rollover") != NULL, p);
	/* The handle does not keep the group that was refused, so it is in no group. */
	CHECK(pcap_activate(p) == 0, p);
	CHECK(pcap_fanout_group(p) == PCAP_ERROR, p);
	pcap_close(member(GROUP, "lb"));
	pcap_close(p);
}

/* New groups have different numbers, and each new group receives all packets. Handles can join a
   new group by its number. */
static void new_groups(void)
{
	pcap_t *first = member(PCAP_FANOUT_NEW, "lb"), *other = member(PCAP_FANOUT_NEW, "lb"), *joined;
	int number = pcap_fanout_group(first);

	CHECK(number >= 0 && pcap_fanout_group(other) >= 0, first);
	CHECK(number != pcap_fanout_group(other), other);
	ensure_refused(number, "hash");
	joined = member(number, "lb");
	CHECK(pcap_fanout_group(joined) == number, joined);

	send_frames(sender, FRAMES);
	await_received(first, other, FRAMES + FRAMES / 2);
	CHECK(received(other) == FRAMES, other);
	CHECK(received(first) == FRAMES / 2, first);
	CHECK(received(joined) == FRAMES / 2, joined);
	pcap_close(first);
	/* The group continues with the member that joined by number. */
	ensure_refused(number, "hash");
	pcap_close(joined);
	pcap_close(member(number, "hash"));
	pcap_close(other);
}

/* Joins the group with a bare socket, because handles are created more slowly. */
static void join_bare(void)
{
	struct sockaddr_ll address = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
	int fd = socket(AF_PACKET, SOCK_RAW, 0), fanout = GROUP | PACKET_FANOUT_LB << 16;

	address.sll_ifindex = (int)if_nametoindex(device);
	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0, NULL);
	CHECK(setsockopt(fd, SOL_PACKET, PACKET_FANOUT, &fanout, sizeof(fanout)) == 0, NULL);
}

static void full_group(void)
{
	pcap_t *first = member(GROUP, "lb"), *last, *one_more = asking(GROUP, "lb");

	for (int i = 2; i < MEMBERS_MAX; i++)
		join_bare();
	last = member(GROUP, "lb");
	CHECK(fanout_stats(first).members == MEMBERS_MAX, first);
	CHECK(pcap_activate(one_more) < 0, one_more);
	CHECK(strstr(pcap_geterr(one_more), "256") != NULL, one_more);
	pcap_close(last);
	/* The handle that was refused gets the place that is now free. */
	CHECK(pcap_activate(one_more) == 0, one_more);
	CHECK(fanout_stats(one_more).members == MEMBERS_MAX, one_more);
}

/* Starts a child that has a member until the child is killed. */
static pid_t hold_in_child(const char *mode)
{
	int ready[2];
	char byte;
	pid_t child;

	CHECK(pipe(ready) == 0, NULL);
	child = fork();
	if (child == 0) {
		(void)member(GROUP, mode);
		CHECK(write(ready[1], "", 1) == 1, NULL);
		pause();
	}
	CHECK(read(ready[0], &byte, 1) == 1, NULL);
	close(ready[0]);
	close(ready[1]);
	return child;
}

/* A group ends with its last member, however that member ends. A refused handle does not keep the
   group alive. */
static void reused_number(void)
{
	pcap_t *last, *refused;
	pid_t child;

	pcap_close(member(GROUP, "hash"));
	pcap_close(member(GROUP, "lb"));

	child = hold_in_child("rnd");
	ensure_refused(GROUP, "lb");
	CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child, NULL);
	last = member(GROUP, "lb");

	refused = asking(GROUP, "hash");
	CHECK(pcap_activate(refused) < 0, refused);
	pcap_close(last);
	CHECK(pcap_activate(refused) == 0, refused);
	CHECK(pcap_fanout_group(refused) == GROUP, refused);
	CHECK(fanout_stats(refused).members == 1, refused);
	send_frames(sender, FRAMES);
	await_received(refused, NULL, FRAMES);
	CHECK(received(refused) == FRAMES, refused);
	pcap_close(refused);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{ "others-stay-out", others_stay_out }, { "rollover-twice", rollover_twice },
	{ "new-groups", new_groups },		{ "full-group", full_group },
	{ "reused-number", reused_number },
};

int main(int argc, char **argv)
{
	if (argc != 4)
		fail("usage", "kernel CASE DEVICE SENDER");
	device = argv[2];
	sender = argv[3];
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (strcmp(argv[1], cases[i].name) == 0) {
			cases[i].run();
			puts("all checks passed");
			return 0;
		}
	}
	fail(argv[1], "no such case");
}
