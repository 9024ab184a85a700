/* The members of one group, and a witness handle outside the group. Usage: shared DEVICE MEMBERS
   FANOUT FRAMES DIRECTORY. Writes each member's packets to DIRECTORY/NUMBER.pcap. Ends when FRAMES
   frames have passed the device and the members have read all their packets. Then prints the
   counters. */
#include "scene.h"
#include <poll.h>

enum { GROUP = 7, MEMBERS_MAX = 64, RING_BYTES = 8 << 20, TIMEOUT_MS = 10, LIMIT_SECONDS = 60 };

struct member {
	pcap_t *handle;
	pcap_dumper_t *file;
	unsigned long packets;
};

static struct member members[MEMBERS_MAX];

static void open_member(struct member *member, const char *device, const char *fanout, const char *path)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	pcap_t *p = created(device);

	pcap_set_timeout(p, TIMEOUT_MS);
	pcap_set_buffer_size(p, RING_BYTES);
	if (pcap_fanout(p, GROUP, fanout) != 0)
		fail("pcap_fanout", pcap_geterr(p));
	if (pcap_activate(p) < 0)
		fail("pcap_activate", pcap_geterr(p));
	if (pcap_setnonblock(p, 1, errbuf) != 0)
		fail("pcap_setnonblock", errbuf);
	member->handle = p;
	member->file = pcap_dump_open(p, path);
	if (member->file == NULL)
		fail("pcap_dump_open", pcap_geterr(p));
}

static void keep(u_char *self, const struct pcap_pkthdr *header, const u_char *bytes)
{
	struct member *member = (struct member *)self;

	member->packets++;
	pcap_dump((u_char *)member->file, header, bytes);
}

static void read_all(int count)
{
	struct pollfd rings[MEMBERS_MAX];

	for (int i = 0; i < count; i++)
		rings[i] = (struct pollfd){ .fd = pcap_get_selectable_fd(members[i].handle), .events = POLLIN };
	poll(rings, (nfds_t)count, TIMEOUT_MS);
	for (int i = 0; i < count; i++) {
		if (pcap_dispatch(members[i].handle, -1, keep, (u_char *)&members[i]) < 0)
			fail("pcap_dispatch", pcap_geterr(members[i].handle));
	}
}

/* Whether a member has packets that it has not read. */
static int more_waits(int count)
{
	for (int i = 0; i < count; i++) {
		struct pcap_stat stat;

		if (pcap_stats(members[i].handle, &stat) != 0)
			fail("pcap_stats", pcap_geterr(members[i].handle));
		if (members[i].packets + stat.ps_drop < stat.ps_recv)
			return 1;
	}
	return 0;
}

/* Prints a member's counters. pcap_fanout_stats() also publishes the counters of its own member.
   So the group's sums, for which the program asks later, include all members. */
static void report(int number, const struct member *member)
{
	struct pcap_fanout_stat st = fanout_stats(member->handle);

	printf("member %d packets=%lu received=%llu dropped=%llu\n", number, member->packets,
	       (unsigned long long)st.received, (unsigned long long)st.dropped);
}

static void report_group(pcap_t *p)
{
	struct pcap_fanout_stat st = fanout_stats(p);

	fputs("group", stdout);
	if (st.valid & PCAP_FANOUT_STAT_LATE)
		printf(" late=%llu", (unsigned long long)st.late);
	for (int i = 0; i < PCAP_FANOUT_COUNTERS && st.valid & PCAP_FANOUT_STAT_GROUP_COUNTERS; i++) {
		if (st.group_counters[i] != 0)
			printf(" counter%d=%lld", i, (long long)st.group_counters[i]);
	}
	putchar('\n');
}

int main(int argc, char **argv)
{
	time_t end = time(NULL) + LIMIT_SECONDS;
	char path[4096];
	pcap_t *witness;
	unsigned frames;
	int count;

	if (argc != 6) {
		puts("usage: shared DEVICE MEMBERS FANOUT FRAMES DIRECTORY");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	count = atoi(argv[2]);
	frames = (unsigned)atoi(argv[4]);
	/* The witness is opened before the group, so the kernel gives each frame to the group first
	   and then to the witness. So a frame that the witness has received has reached the group,
	   too.
	 */
	witness = opened(argv[1], 0, NULL);
	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/%d.pcap", argv[5], i);
		open_member(&members[i], argv[1], argv[3], path);
	}
	/* A member has its share once it has read. */
	read_all(count);
	puts("ready");
	while ((received(witness) < frames || more_waits(count)) && time(NULL) < end)
		read_all(count);
	printf("wire witness=%u\n", received(witness));
	for (int i = 0; i < count; i++)
		report(i, &members[i]);
	report_group(members[0].handle);
	for (int i = 0; i < count; i++) {
		pcap_dump_close(members[i].file);
		pcap_close(members[i].handle);
	}
	pcap_close(witness);
	return 0;
}
