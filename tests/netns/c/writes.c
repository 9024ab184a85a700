/* An application that writes into its packets. Usage: writes DEVICE FILE [immediate|next|behind]...
   Writes each packet unchanged to FILE, then changes all of its bytes. With `immediate`, the
   handle is in immediate mode. With `next`, reads by pcap_next_ex(), and checks that the packet's
   bytes stay unchanged until the next read. With `behind`, also writes the byte after each packet.
   Prints "ready", and ends at SIGINT. */
#include <pcap.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static pcap_t *p;
static pcap_dumper_t *file;
static volatile sig_atomic_t stopped;
static int behind;

static void stop(int signal)
{
	(void)signal;
	stopped = 1;
	pcap_breakloop(p);
}

static void change(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	u_char *own = (u_char *)bytes;

	(void)user;
	pcap_dump((u_char *)file, header, bytes);
	pcap_dump_flush(file);
	for (bpf_u_int32 at = 0; at < header->caplen; at++)
		own[at] ^= 0xff;
	if (behind)
		own[header->caplen] = 0;
}

static int read_one(void)
{
	struct pcap_pkthdr *header;
	const u_char *bytes;
	u_char first;
	int status = pcap_next_ex(p, &header, &bytes);

	if (status != 1)
		return status;
	first = bytes[0];
	change(NULL, header, bytes);
	return (bytes[0] ^ first) == 0xff ? 1 : PCAP_ERROR;
}

int main(int argc, char **argv)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	int next = 0, status;

	if (argc < 3 || (p = pcap_create(argv[1], errbuf)) == NULL)
		return 2;
	pcap_set_snaplen(p, 65535);
	pcap_set_timeout(p, 50);
	pcap_set_buffer_size(p, 16 << 20);
	for (int i = 3; i < argc; i++) {
		next |= strcmp(argv[i], "next") == 0;
		behind |= strcmp(argv[i], "behind") == 0;
		if (strcmp(argv[i], "immediate") == 0)
			pcap_set_immediate_mode(p, 1);
	}
	if (pcap_activate(p) < 0 || (file = pcap_dump_open(p, argv[2])) == NULL) {
		fprintf(stderr, "%s\n", pcap_geterr(p));
		return 1;
	}
	signal(SIGINT, stop);
	fprintf(stderr, "ready\n");
	do
		status = next ? read_one() : pcap_dispatch(p, -1, change, NULL);
	while (status >= 0 && !stopped);
	pcap_dump_close(file);
	if (status == PCAP_ERROR)
		fprintf(stderr, "%s\n", pcap_geterr(p));
	return status == PCAP_ERROR;
}
