/* Filters set while packets are queued: which queued packets pass, and which later ones. */

static inline void send_some(int in, int out)
{
	for (size_t i = 0; i < 4; i++) {
		send_tagged(in, &taggings[i == 3 ? 6 : i], 60 + i);
		send_tagged(out, &taggings[i == 3 ? 6 : i], 80 + i);
	}
}

static inline void replace(int in, int out, int version, const char *expression)
{
	pcap_t *p = opened(far, version);
	send_some(in, out);
	settle(p, 8);
	printf("version %d, %s:", version, expression);
	if (!tried(p, expression))
		return;
	printf(" -> %d,", drain(p, print_size, NULL));
	/* Send the same packets again, to show which of them the kernel passes. */
	send_some(in, out);
	sleep_ms(settled());
	printf(" -> %d\n", drain(p, print_size, NULL));
	print_stats(p);
	pcap_close(p);
}
