/* Operations on a handle that is open. */
#ifndef reading_h
#define reading_h

#include "go.h"

#include <pthread.h>
#include <stdatomic.h>

enum { BREAK_AFTER_MS = 5 };

static void set_filter(struct go *go)
{
	struct seen seen = { 0, 0 };
	struct bpf_program program;
	pcap_t *p = opened();

	if (pcap_compile(p, &program, "ether proto 0x88b5", 1, PCAP_NETMASK_UNKNOWN) != 0)
		give_up("pcap_compile", pcap_geterr(p));
	arm(go->fault);
	go->status = pcap_setfilter(p, &program);
	disarm();
	keep_message(go, pcap_geterr(p));
	if (go->status < 0 && pcap_setfilter(p, &program) != 0)
		wrong(go, "not-set-again");
	send_frames(OTHERS, FRAMES);
	send_frames(OURS, FRAMES);
	read_frames(p, &seen);
	if (seen.ours != FRAMES || seen.others != 0)
		wrong(go, "reads-%d-and-%d-others", seen.ours, seen.others);
	pcap_freecode(&program);
	pcap_close(p);
}

/* Calls pcap_dispatch() while packets wait in the ring. No packet may be lost. */
static void dispatch_waiting(struct go *go)
{
	struct seen seen = { 0, 0 };
	pcap_t *p = opened();

	send_frames(OURS, FRAMES);
	await_frames(p, READ_MS);
	arm(go->fault);
	go->status = pcap_dispatch(p, -1, count_frame, (u_char *)&seen);
	disarm();
	keep_message(go, pcap_geterr(p));
	read_frames(p, &seen);
	if (seen.ours != FRAMES || seen.others != 0)
		wrong(go, "reads-%d-of-%d", seen.ours + seen.others, FRAMES);
	pcap_close(p);
}

static atomic_int waiting;

static void *break_soon(void *p)
{
	const struct timespec pause = { .tv_nsec = BREAK_AFTER_MS * 1000000 };

	while (!atomic_load(&waiting))
		nanosleep(&pause, NULL);
	nanosleep(&pause, NULL);
	pcap_breakloop(p);
	return NULL;
}

static void dispatch_blocked(struct go *go)
{
	struct seen seen = { 0, 0 };
	pcap_t *p = opened();
	pthread_t breaker;

	atomic_store(&waiting, 0);
	if (pthread_create(&breaker, NULL, break_soon, p) != 0)
		give_up("pthread_create", "no thread");
	atomic_store(&waiting, 1);
	arm(go->fault);
	do
		go->status = pcap_dispatch(p, -1, count_frame, (u_char *)&seen);
	while (go->status == 0);
	disarm();
	pthread_join(breaker, NULL);
	/* pcap_breakloop() ended the loop, which is no failure. */
	if (go->status == PCAP_ERROR_BREAK)
		go->status = 0;
	keep_message(go, pcap_geterr(p));
	check_works(go, p);
	pcap_close(p);
}

/* Reads the statistics. A failed call must not change the counters. */
static void read_stats(struct go *go)
{
	struct pcap_stat stat = { 0, 0, 0 };
	pcap_t *p = opened();

	send_frames(OURS, FRAMES);
	settle(p);
	arm(go->fault);
	go->status = pcap_stats(p, &stat);
	disarm();
	keep_message(go, pcap_geterr(p));
	if (go->status == 0 && stat.ps_recv != FRAMES)
		wrong(go, "received-%u", stat.ps_recv);
	if (pcap_stats(p, &stat) != 0 || stat.ps_recv != FRAMES)
		wrong(go, "afterwards-received-%u", stat.ps_recv);
	pcap_close(p);
}

static void check_fanout_stats(struct go *go, const struct pcap_fanout_stat *st, const char *when)
{
	if (st->valid & PCAP_FANOUT_STAT_MEMBERS && st->members != 2)
		wrong(go, "%smembers-%llu", when, (unsigned long long)st->members);
	if (st->valid & PCAP_FANOUT_STAT_RECEIVED && st->received != FRAMES)
		wrong(go, "%sreceived-%llu", when, (unsigned long long)st->received);
	if (st->valid & PCAP_FANOUT_STAT_GROUP_RECEIVED && st->group_received != 2ULL * FRAMES)
		wrong(go, "%sgroup-received-%llu", when, (unsigned long long)st->group_received);
}

/* Calls pcap_fanout_stats(). If the call succeeds although a system call has failed, all fields
   that it marks as valid must be right. */
static void read_fanout_stats(struct go *go)
{
	const uint32_t all = PCAP_FANOUT_STAT_RECEIVED | PCAP_FANOUT_STAT_DROPPED | PCAP_FANOUT_STAT_MEMBERS |
			     PCAP_FANOUT_STAT_GROUP_RECEIVED | PCAP_FANOUT_STAT_GROUP_DROPPED;
	struct pcap_fanout_stat st = { .size = sizeof(st) };
	pcap_t *beside = opened(), *p = opened();

	send_frames(OURS, 2 * FRAMES);
	settle(p);
	arm(go->fault);
	go->status = pcap_fanout_stats(p, &st);
	disarm();
	keep_message(go, pcap_geterr(p));
	if (go->status == 0)
		check_fanout_stats(go, &st, "");
	if (pcap_fanout_stats(p, &st) != 0 || st.valid != all)
		wrong(go, "afterwards-valid-%#x", st.valid);
	check_fanout_stats(go, &st, "afterwards-");
	pcap_close(p);
	pcap_close(beside);
}

/* Sets non-blocking mode, then blocking mode again, for which the handle needs a descriptor that
   ends its waits. */
static void set_nonblock(struct go *go)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	pcap_t *p = opened();

	arm(go->fault);
	go->status = pcap_setnonblock(p, 1, errbuf);
	if (go->status == 0)
		go->status = pcap_setnonblock(p, 0, errbuf);
	disarm();
	keep_message(go, errbuf);
	if (go->status < 0 && pcap_setnonblock(p, 0, errbuf) != 0)
		wrong(go, "not-set-again");
	check_works(go, p);
	pcap_close(p);
}

static void close_handle(struct go *go)
{
	pcap_t *p = opened();

	arm(go->fault);
	pcap_close(p);
	disarm();
}

#endif
