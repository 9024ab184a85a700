/* The captured bytes of each kind of tagged frame. */

static inline void print_packet(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	const struct tagging **tagging = (const struct tagging **)user;
	printf("  %u of %u, %s: ", header->caplen, header->len, (*tagging)->name);
	print_bytes(bytes, header->caplen < 34 ? header->caplen : 34);
	printf(" .. %02x\n", bytes[header->caplen - 1]);
	++*tagging;
}

static inline void read_all(const char *how, int version, int snaplen, const char *expression,
		int port, const char *device)
{
	const struct tagging *next = taggings;
	pcap_t *p = created(device, version);
	pcap_set_snaplen(p, snaplen);
	activated(p);
	printf("%s, version %d, snaplen %d, filter %s\n", how, version, snaplen,
		expression ? expression : "none");
	if (expression)
		filter(p, expression);
	for (int i = 0; i < TAGGINGS; i++)
		send_tagged(port, &taggings[i], 100);
	settle(p, TAGGINGS);
	drain(p, print_packet, &next);
	pcap_close(p);
}
