/* Does one thing that the library must refuse, and prints the library's reason. Usage: refused CASE
   DEVICE OTHER_DEVICE. */
#define _GNU_SOURCE
#include <pcap/pcap.h>
#include <pcap/fanout.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *device, *other_device;

static pcap_t *created(const char *name)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	pcap_t *p = pcap_create(name, errbuf);

	if (p == NULL || pcap_set_buffer_size(p, 1) != 0) {
		fprintf(stderr, "pcap_create: %s\n", errbuf);
		exit(2);
	}
	return p;
}

static pcap_t *activated(const char *name)
{
	pcap_t *p = created(name);

	if (pcap_activate(p) < 0) {
		fprintf(stderr, "pcap_activate: %s\n", pcap_geterr(p));
		exit(2);
	}
	return p;
}

/* Lets a handle join a group. If the group is refused, the handle has the reason. */
static pcap_t *joined(pcap_t *p, int group, const char *mode)
{
	if (pcap_fanout(p, group, mode) == 0)
		(void)pcap_activate(p);
	return p;
}

static pcap_t *not_packet(void) { return joined(created("nflog"), 7, "hash"); }
static pcap_t *dead(void) { return joined(pcap_open_dead(1, 96), 7, "hash"); }
static pcap_t *group_range(void) { return joined(created(device), 65536, "hash"); }
static pcap_t *bad_mode(void) { return joined(created(device), 7, "hahs"); }

static pcap_t *already_in(void)
{
	pcap_t *p = joined(created(device), 7, "hash");

	(void)pcap_fanout(p, 8, "hash");
	return p;
}

static pcap_t *already_as(void)
{
	pcap_t *p = joined(created(device), 7, "flow+defrag");

	(void)pcap_fanout(p, 7, "main = steer_flow");
	return p;
}

static pcap_t *other_mode(void)
{
	joined(created(device), 7, "hash");
	return joined(created(device), 7, "rnd");
}

static pcap_t *other_options(void)
{
	joined(created(device), 7, "hash+defrag");
	return joined(created(device), 7, "hash");
}

static pcap_t *on_other_device(void)
{
	joined(created(other_device), 7, "hash");
	return joined(created(device), 7, "hash");
}

static pcap_t *other_protocol(void)
{
	pcap_t *p = created(device);

	joined(created(device), 7, "hash");
	(void)pcap_set_protocol_linux(p, 0x0800);
	return joined(p, 7, "hash");
}

static pcap_t *full(void)
{
	pcap_t *p = NULL;

	for (int i = 0; i < 257; i++)
		p = joined(created(device), 7, "hash");
	return p;
}

static pcap_t *stats_without_group(void)
{
	struct pcap_fanout_stat st = { .size = sizeof st };
	pcap_t *p = activated(device);

	(void)pcap_fanout_stats(p, &st);
	return p;
}

static pcap_t *stats_without_size(void)
{
	struct pcap_fanout_stat st = { .size = 0 };
	pcap_t *p = joined(created(device), 7, "hash");

	(void)pcap_fanout_stats(p, &st);
	return p;
}

/* Expects PCAP_GROUP=7 and another mode in the environment. */
static pcap_t *set_by_variable(void)
{
	pcap_t *p = created(device);

	joined(created(device), 7, "hash");
	(void)pcap_activate(p);
	return p;
}

#define TCP "main = tcp >-> steer_flow"
#define UDP "main = udp >-> steer_flow"
#define ALL "main = steer_rnd"

static pcap_t *other_program(void)
{
	joined(created(device), 7, TCP);
	return joined(created(device), 7, UDP);
}

/* Continues as another user or as root, with the given capabilities (bits 0 to 63). */
static void keep(int user, unsigned long long capabilities)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = {
		{ .effective = (unsigned)capabilities, .permitted = (unsigned)capabilities },
		{ .effective = (unsigned)(capabilities >> 32), .permitted = (unsigned)(capabilities >> 32) },
	};

	if (prctl(PR_SET_KEEPCAPS, 1) != 0 || setresuid(user, user, user) != 0 ||
	    syscall(SYS_capset, &header, data) != 0) {
		perror("capset");
		exit(2);
	}
}

#define NET_RAW (1ULL << CAP_NET_RAW)
#define BPF (1ULL << 39)

static pcap_t *without_cap_net_raw(void)
{
	keep(65534, 0);
	return joined(created(device), 7, "flow");
}

static pcap_t *without_cap_bpf(void)
{
	keep(0, NET_RAW);
	return joined(created(device), 7, TCP);
}

/* Limits the option memory of sockets in this namespace. */
static void limit(const char *bytes)
{
	FILE *file = fopen("/proc/sys/net/core/optmem_max", "w");

	if (file == NULL || fputs(bytes, file) < 0 || fclose(file) != 0)
		exit(2);
}

static pcap_t *without_room(void)
{
	pcap_t *p = created(device);

	limit("300");
	joined(p, 7, TCP);
	limit("131072");
	return p;
}

/* "notether" is a device that the test has created. Its frames are not Ethernet frames. */
static pcap_t *not_ethernet(void) { return joined(created("notether"), 7, TCP); }

/* The device "any" may include devices without Ethernet frames. */
static pcap_t *all_devices(void) { return joined(created("any"), 7, TCP); }

/* Starts a member in another process, which runs as long as this process. */
static void member_elsewhere(const char *program, void (*first)(void))
{
	int parent[2], child[2];
	char byte = 0;

	if (pipe(parent) != 0 || pipe(child) != 0)
		exit(2);
	if (fork() == 0) {
		close(parent[1]);
		close(child[0]);
		first();
		joined(created(device), 7, program);
		if (write(child[1], &byte, 1) == 1)
			(void)!read(parent[0], &byte, 1);
		_exit(0);
	}
	close(parent[0]);
	close(child[1]);
	(void)!read(child[0], &byte, 1);
}

static void as_it_is(void) {}
static void as_nobody(void) { keep(65534, NET_RAW | BPF); }

/* The process can't create files, so it can't create a page. */
static void without_files(void)
{
	struct rlimit none = { 0, 0 };

	(void)signal(SIGXFSZ, SIG_IGN);
	if (setrlimit(RLIMIT_FSIZE, &none) != 0)
		exit(2);
}

static pcap_t *replaced(const char *before, const char *after)
{
	pcap_t *p = joined(created(device), 7, before);

	(void)pcap_fanout(p, 7, after);
	return p;
}

static pcap_t *of_others(void)
{
	member_elsewhere(TCP, as_it_is);
	return replaced(TCP, UDP);
}

static pcap_t *of_pageless(void)
{
	pcap_t *p = joined(created(device), 7, ALL);

	member_elsewhere(ALL, without_files);
	(void)pcap_fanout(p, 7, "main = steer_rrobin");
	return p;
}

/* The other member runs as the user nobody, so it has no page. */
static pcap_t *unreachable(void)
{
	member_elsewhere(ALL, as_nobody);
	return joined(created(device), 7, ALL);
}

/* The caller has left the group's network namespace. The caller is a forked child, because a child
   lacks the socket by which its parent asks the kernel who is in the group. */
static pcap_t *of_unseen(void)
{
	pcap_t *p = joined(created(device), 7, TCP);
	pid_t child = fork();
	int status;

	if (child > 0) {
		(void)waitpid(child, &status, 0);
		exit(WIFEXITED(status) ? WEXITSTATUS(status) : 2);
	}
	if (unshare(CLONE_NEWNET) != 0) {
		perror("unshare");
		exit(2);
	}
	(void)pcap_fanout(p, 7, UDP);
	return p;
}

static pcap_t *of_another_user(void)
{
	pcap_t *p = joined(created(device), 7, ALL);

	member_elsewhere(ALL, as_it_is);
	as_nobody();
	(void)pcap_fanout(p, 7, "main = steer_rrobin");
	return p;
}

static pcap_t *several(const char *other)
{
	char names[64];

	snprintf(names, sizeof names, "%s^%s", device, other);
	return created(names);
}

static pcap_t *one_group_for_several(void) { return joined(several(other_device), 7, "hash"); }

static pcap_t *by_settings_in_one_group(void)
{
	setenv("PCAP_GROUP", "7", 1);
	setenv("PCAP_FANOUT", "hash", 1);
	pcap_t *p = several(other_device);

	(void)pcap_activate(p);
	return p;
}

static pcap_t *on_other_devices(void)
{
	(void)joined(created(device), 7, "flow");
	return joined(several(other_device), 7, "flow");
}

static pcap_t *several_not_alike(void)
{
	pcap_t *p = several("any");

	(void)pcap_activate(p);
	return p;
}

/* Without the system's library there is no handle that could have the error, so this function
   prints it. */
static pcap_t *no_system_library(void)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";

	puts(pcap_create(device, errbuf) == NULL ? errbuf : "a handle was made");
	exit(0);
}

static const struct {
	const char *name;
	pcap_t *(*run)(void);
} cases[] = {
	{ "not-a-packet-socket", not_packet },
	{ "not-a-live-handle", dead },
	{ "group-out-of-range", group_range },
	{ "call-with-unknown-mode", bad_mode },
	{ "already-in-a-group", already_in },
	{ "already-in-by-another-mode", already_as },
	{ "group-has-other-mode", other_mode },
	{ "group-has-other-options", other_options },
	{ "group-has-other-program", other_program },
	{ "group-needs-cap-net-raw", without_cap_net_raw },
	{ "program-needs-cap-bpf", without_cap_bpf },
	{ "program-without-room", without_room },
	{ "program-needs-ethernet", not_ethernet },
	{ "program-on-all-devices", all_devices },
	{ "group-unreachable", unreachable },
	{ "program-of-others", of_others },
	{ "program-of-members-without-page", of_pageless },
	{ "program-of-members-unseen", of_unseen },
	{ "program-of-members-of-another-user", of_another_user },
	{ "group-on-other-device", on_other_device },
	{ "group-has-other-protocol", other_protocol },
	{ "one-group-for-several-devices", one_group_for_several },
	{ "group-on-one-device", by_settings_in_one_group },
	{ "group-on-other-devices", on_other_devices },
	{ "several-devices-not-alike", several_not_alike },
	{ "group-is-full", full },
	{ "group-set-by-a-variable", set_by_variable },
	{ "stats-without-group", stats_without_group },
	{ "stats-without-size", stats_without_size },
	{ "no-system-library", no_system_library },
};

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	device = argv[2];
	other_device = argv[3];
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		if (strcmp(argv[1], cases[i].name) == 0) {
			puts(pcap_geterr(cases[i].run()));
			return 0;
		}
	}
	fprintf(stderr, "no case %s\n", argv[1]);
	return 2;
}
