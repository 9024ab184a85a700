/* Time stamps in micro- and nanoseconds: they increase, lie between sending and reading, and have the right unit. */
#include "../wire.h"

struct state {
	long long last, scale, odd;
	int backwards, packets;
};

static void check(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	struct state *state = (struct state *)user;
	long long stamp = header->ts.tv_sec * state->scale + header->ts.tv_usec;
	(void)bytes;
	state->backwards += stamp < state->last || header->ts.tv_usec >= state->scale;
	state->odd += header->ts.tv_usec % 1000 != 0;
	state->last = stamp;
	state->packets++;
}

static long long real_time(long long scale)
{
	struct timespec time;
	clock_gettime(CLOCK_REALTIME, &time);
	return time.tv_sec * scale + time.tv_nsec / (1000000000 / scale);
}

static void capture(int port, int version, int precision)
{
	struct state state = { .scale = precision == PCAP_TSTAMP_PRECISION_NANO ? 1000000000 : 1000000 };
	pcap_t *p = created(far, version);
	int rc = pcap_set_tstamp_precision(p, precision);
	activated(p);
	printf("version %d, precision %d: %d, %d\n", version, precision, rc, pcap_get_tstamp_precision(p));
	/* The stand-in asks the kernel for stamps, which the kernel begins to take some time later. */
	if (is_uncounted())
		sleep_ms(settled());
	long long before = state.last = real_time(state.scale);
	for (int burst = 0; burst < 4; burst++) {
		send_numbered(port, 0, 25);
		sleep_ms(3);
	}
	settle(p, 100);
	drain(p, check, &state);
	printf("  %d packets, %d out of order or window, before now: %s, after begin: %s\n", state.packets,
	       state.backwards, yes(state.last <= real_time(state.scale)), yes(state.last >= before));
	/* The library adds the difference of two clocks to stamps of microseconds. Whether they stay whole
	   thousands of nanoseconds is chance. */
	printf("  not whole thousands: %s\n", getenv("FANPCAP_MICROSECONDS") ? "chance" : yes(state.odd > 10));
	pcap_close(p);
}

int main(void)
{
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		capture(port, version, PCAP_TSTAMP_PRECISION_MICRO);
		capture(port, version, PCAP_TSTAMP_PRECISION_NANO);
		capture(port, version, 7);
	}
	return 0;
}
