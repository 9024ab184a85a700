/* Checks call by call that the library behaves as pcap/fanout.h describes. Usage: api DEVICE. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pcap/fanout.h>

#define CHECK(condition, p) check(condition, #condition, __LINE__, p)

static void check(int holds, const char *condition, int line, pcap_t *p)
{
	if (holds)
		return;
	printf("api.c:%d: %s: %s\n", line, condition, p != NULL ? pcap_geterr(p) : "");
	exit(1);
}

static pcap_t *handle(const char *device)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	pcap_t *p = pcap_create(device, errbuf);

	CHECK(p != NULL, NULL);
	pcap_set_timeout(p, 50);
	return p;
}

static void outside_any_group(const char *device)
{
	struct pcap_fanout_stat st = { .size = sizeof(st) };
	pcap_t *p = handle(device);

	CHECK(pcap_fanout_group(p) == PCAP_ERROR_NOT_ACTIVATED, p);
	CHECK(pcap_activate(p) == 0, p);
	CHECK(pcap_fanout_group(p) == PCAP_ERROR, p);
	CHECK(pcap_fanout_stats(p, &st) == PCAP_ERROR, p);
	CHECK(pcap_geterr(p)[0] != '\0', p);
	pcap_close(p);
}

static void modes(const char *device)
{
	static const char *const listed[] = { "hash", "lb", "rnd", "cpu", "rollover", "qm", "flow",
	                                      "inner_flow_5_tuple" };
	pcap_t *p = handle(device);
	char **names;
	int count;

	CHECK(pcap_activate(p) == 0, p);
	count = pcap_list_fanout_modes(p, &names);
	CHECK(count >= 8, p);
	for (size_t k = 0; k < sizeof(listed) / sizeof(listed[0]); k++) {
		int found = 0;

		for (int i = 0; i < count; i++)
			found += strcmp(names[i], listed[k]) == 0;
		CHECK(found == 1, p);
	}
	pcap_free_fanout_modes(names);
	pcap_close(p);
}

/* Steering programs need Ethernet frames, which not all devices have. The kernel's modes work on
   all devices. */
static void modes_on_all_devices(void)
{
	pcap_t *p = handle("any");
	char **names;
	int count;

	CHECK(pcap_activate(p) == 0, p);
	count = pcap_list_fanout_modes(p, &names);
	CHECK(count >= 6, p);
	for (int i = 0; i < count; i++)
		CHECK(strcmp(names[i], "flow") != 0, p);
	pcap_free_fanout_modes(names);
	CHECK(pcap_fanout(p, 7, "flow") == PCAP_ERROR, p);
	CHECK(pcap_fanout_group(p) == PCAP_ERROR, p);
	CHECK(pcap_fanout(p, 7, "hash") == 0, p);
	CHECK(pcap_fanout_group(p) == 7, p);
	pcap_close(p);
}

static void new_groups(const char *device)
{
	pcap_t *one = handle(device), *other = handle(device), *joiner = handle(device);

	CHECK(pcap_fanout(one, PCAP_FANOUT_NEW, "lb") == 0, one);
	CHECK(pcap_activate(one) == 0, one);
	CHECK(pcap_activate(other) == 0, other);
	CHECK(pcap_fanout(other, PCAP_FANOUT_NEW, "lb") == 0, other);
	CHECK(pcap_fanout_group(one) >= 0, one);
	CHECK(pcap_fanout_group(other) >= 0, other);
	CHECK(pcap_fanout_group(one) != pcap_fanout_group(other), other);

	CHECK(pcap_fanout(joiner, pcap_fanout_group(one), "lb") == 0, joiner);
	CHECK(pcap_activate(joiner) == 0, joiner);
	CHECK(pcap_fanout_group(joiner) == pcap_fanout_group(one), joiner);
	pcap_close(joiner);
	pcap_close(other);
	pcap_close(one);
}

static void statistics(const char *device)
{
	struct {
		struct pcap_fanout_stat known;
		uint64_t unknown;
	} later;
	struct pcap_fanout_stat st;
	pcap_t *one = handle(device), *other = handle(device);

	CHECK(pcap_fanout(one, 9, "lb") == 0, one);
	CHECK(pcap_fanout(other, 9, "lb") == 0, other);
	CHECK(pcap_activate(one) == 0, one);
	CHECK(pcap_activate(other) == 0, other);
	memset(&st, 0xff, sizeof(st));
	st.size = sizeof(st);
	CHECK(pcap_fanout_stats(one, &st) == 0, one);
	CHECK(st.group == 9, one);
	CHECK(st.valid & PCAP_FANOUT_STAT_RECEIVED && st.received == 0, one);
	CHECK(st.valid & PCAP_FANOUT_STAT_DROPPED && st.dropped == 0, one);
	CHECK(st.valid & PCAP_FANOUT_STAT_MEMBERS && st.members == 2, one);

	st.size = 0;
	CHECK(pcap_fanout_stats(one, &st) == PCAP_ERROR, one);
	/* A caller that was built before the structure had counters of steering programs. */
	memset(&st, 0xff, sizeof(st));
	st.size = offsetof(struct pcap_fanout_stat, counters);
	CHECK(st.size == 64, one);
	CHECK(pcap_fanout_stats(one, &st) == 0, one);
	CHECK(st.members == 2 && st.counters[0] == UINT64_MAX && st.late == UINT64_MAX, one);
	/* A caller that was built for a larger structure. The library must not change the additional
	   fields. */
	memset(&later, 0xff, sizeof(later));
	later.known.size = sizeof(later);
	CHECK(pcap_fanout_stats(one, &later.known) == 0, one);
	CHECK(later.known.members == 2 && later.unknown == UINT64_MAX, one);
	pcap_close(other);
	pcap_close(one);
}

static void refusals(const char *device)
{
	pcap_t *p = handle(device);

	CHECK(pcap_fanout(p, 65536, "hash") == PCAP_ERROR, p);
	CHECK(pcap_fanout(p, -2, "hash") == PCAP_ERROR, p);
	CHECK(pcap_fanout(p, 7, "hahs") == PCAP_ERROR, p);
	CHECK(strstr(pcap_geterr(p), "hahs") != NULL, p);
	/* The handle does not keep the group that was refused. */
	CHECK(pcap_activate(p) == 0, p);
	CHECK(pcap_fanout_group(p) == PCAP_ERROR, p);
	CHECK(pcap_fanout(p, 7, NULL) == 0, p);
	CHECK(pcap_fanout_group(p) == 7, p);
	CHECK(pcap_fanout(p, 8, NULL) == PCAP_ERROR, p);
	CHECK(pcap_fanout_group(p) == 7, p);
	pcap_close(p);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		puts("usage: api DEVICE");
		return 2;
	}
	outside_any_group(argv[1]);
	modes(argv[1]);
	modes_on_all_devices();
	new_groups(argv[1]);
	statistics(argv[1]);
	refusals(argv[1]);
	puts("all checks passed");
	return 0;
}
