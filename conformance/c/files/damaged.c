/* Savefiles that are cut short or damaged: where reading ends, and with which message. */
#include "../wire.h"
#include "../savefile.h"

static void read_bytes(const char *what, const unsigned char *bytes, size_t size)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	unsigned count = 0;
	FILE *file = fopen("damaged.pcap", "w");
	fwrite(bytes, 1, size, file);
	fclose(file);
	pcap_t *p = pcap_open_offline("damaged.pcap", errbuf);
	printf("%s: %s [%s]", what, yes(p != NULL), p ? "" : errbuf);
	if (p) {
		int rc = pcap_loop(p, -1, count_packet, (u_char *)&count);
		printf(" -> %d, %u [%s]", rc, count, rc == -1 ? pcap_geterr(p) : "");
		pcap_close(p);
	}
	printf("\n");
}

int main(void)
{
	static const size_t sizes[] = { 0, 3, 4, 23, 24, 30, 40, 60, 99, 100, 115, 175, 176 };
	static const unsigned char section[] = { 0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0,
		                                 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 28, 0, 0, 0,
		                                 1, 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 96, 0, 0, 0, 20, 0, 0, 0,
		                                 6, 0, 0, 0, 36, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0,
		                                 4, 0, 0, 0, 9, 0, 0, 0, 'a', 'b', 'c', 'd', 36, 0, 0, 0 };
	unsigned char bytes[512], changed[512];
	char what[32];
	write_savefile("whole.pcap", 0xa1b2c3d4, 0, 3);
	FILE *file = fopen("whole.pcap", "r");
	size_t size = fread(bytes, 1, sizeof bytes, file);
	fclose(file);
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		snprintf(what, sizeof what, "%zu bytes", sizes[i]);
		read_bytes(what, bytes, sizes[i]);
	}
	for (size_t at = 0; at < 40; at += 2) {
		memcpy(changed, bytes, size);
		changed[at] ^= 0x7f;
		changed[at + 1] ^= 0x7f;
		snprintf(what, sizeof what, "changed at %zu", at);
		read_bytes(what, changed, size);
	}
	read_bytes("pcapng", section, sizeof section);
	read_bytes("pcapng without an interface", section, 28);
	read_bytes("pcapng cut short", section, sizeof section - 3);
	return 0;
}
