/* Functions that create, print and compare savefiles. */

static inline void print_file(const char *path)
{
	unsigned char bytes[4096];
	FILE *file = fopen(path, "r");
	size_t size = file ? fread(bytes, 1, sizeof bytes, file) : 0;
	printf("  %s, %zu bytes: ", path, size);
	print_bytes(bytes, size);
	printf("\n");
	if (file)
		fclose(file);
}

/* A callback that dumps a packet. It replaces the packet's time stamp by a fixed time, different
   for each packet. */
static inline void dump_timeless(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	static long time = 1700000000;
	struct pcap_pkthdr timeless = *header;
	timeless.ts.tv_sec = time++;
	timeless.ts.tv_usec = 123456;
	pcap_dump(user, &timeless, bytes);
}

/* Writes a savefile of COUNT packets without the library, with the magic number MAGIC. If
   SWAPPED, the savefile has the other byte order. */
static inline void write_savefile(const char *path, unsigned magic, int swapped, unsigned count)
{
	unsigned words[6] = { magic, 2 | 4 << 16, 0, 0, 65535, DLT_EN10MB };
	FILE *file = fopen(path, "w");
	if (swapped) {
		words[1] = 2 << 16 | 4;
		for (int i = 0; i < 6; i++)
			words[i] = htonl(words[i]);
	}
	fwrite(words, 1, sizeof words, file);
	for (unsigned i = 0; i < count; i++) {
		unsigned char frame[SMALLEST] = { 0 };
		unsigned record[4] = { 1700000000 + i, 999 + i, SMALLEST, SMALLEST + i };
		for (int word = 0; swapped && word < 4; word++)
			record[word] = htonl(record[word]);
		put32(header(frame, NUMBERED), i);
		fwrite(record, 1, sizeof record, file);
		fwrite(frame, 1, sizeof frame, file);
	}
	fclose(file);
}
