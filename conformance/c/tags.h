/* Frames with VLAN tags: an IPv4 datagram after any number of tags. */

struct tag {
	unsigned tpid, tci;
};

static const struct tagging {
	const char *name;
	struct tag tags[3];
} taggings[] = {
	{ "untagged", { { 0, 0 } } },
	{ "802.1Q 100", { { 0x8100, 100 } } },
	{ "802.1Q 100, priority 5", { { 0x8100, 5 << 13 | 100 } } },
	{ "priority only", { { 0x8100, 3 << 13 } } },
	{ "VID 0, priority 0", { { 0x8100, 0 } } },
	{ "VID 4095", { { 0x8100, 4095 } } },
	{ "802.1ad 200", { { 0x88a8, 200 } } },
	{ "802.1ad 200, 802.1Q 100", { { 0x88a8, 200 }, { 0x8100, 100 } } },
	{ "802.1Q 200, 802.1Q 100", { { 0x8100, 200 }, { 0x8100, 100 } } },
	{ "three tags", { { 0x88a8, 1 }, { 0x8100, 2 }, { 0x8100, 3 } } },
	{ "an older TPID", { { 0x9100, 100 } } },
};

enum { TAGGINGS = sizeof taggings / sizeof taggings[0] };

/* Puts the tags behind the addresses of a frame of SIZE bytes. Returns the frame's size with the
   tags. */
static inline size_t insert_tags(unsigned char *frame, size_t size, const struct tagging *tagging)
{
	for (int i = 2; i >= 0; i--) {
		const struct tag *tag = &tagging->tags[i];
		if (tag->tpid) {
			memmove(frame + 16, frame + 12, size - 12);
			put32(frame + 12, tag->tpid << 16 | tag->tci);
			size += 4;
		}
	}
	return size;
}

static inline void send_tagged(int port, const struct tagging *tagging, size_t payload)
{
	unsigned char frame[2048];
	size_t size = datagram(frame, 1000, 2000, payload);
	send_frame(port, frame, insert_tags(frame, size, tagging));
}
