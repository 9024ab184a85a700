/* Savefiles that can't be opened, written or appended to; standard output; a stream that the program opened. */
#include <fcntl.h>
#include "../wire.h"
#include "../savefile.h"

static void report(pcap_t *p, const char *what, pcap_dumper_t *dumper)
{
	printf("%s: %s [%s]\n", what, yes(dumper != NULL), dumper ? "" : pcap_geterr(p));
	if (dumper)
		pcap_dump_close(dumper);
}

int main(void)
{
	struct pcap_pkthdr header = { { 1, 2 }, 4, 9 };
	pcap_t *p = opened(far, 3), *nano = created(far, 3), *dead = pcap_open_dead(DLT_RAW, 77);
	pcap_set_tstamp_precision(nano, PCAP_TSTAMP_PRECISION_NANO);
	activated(nano);
	report(p, "no such directory", pcap_dump_open(p, "absent/x.pcap"));
	report(p, "a directory", pcap_dump_open(p, "."));
	report(p, "no name", pcap_dump_open(p, NULL));
	report(p, "append to none", pcap_dump_open_append(p, "fresh.pcap"));
	print_file("fresh.pcap");
	report(p, "append to the same", pcap_dump_open_append(p, "fresh.pcap"));
	report(nano, "append nanoseconds", pcap_dump_open_append(nano, "fresh.pcap"));
	report(dead, "append another link type", pcap_dump_open_append(dead, "fresh.pcap"));
	write_savefile("swapped.pcap", 0xa1b2c3d4, 1, 1);
	report(p, "append to the other byte order", pcap_dump_open_append(p, "swapped.pcap"));
	FILE *text = fopen("text", "w");
	fputs("this is a text, not a savefile", text);
	fclose(text);
	report(p, "append to a text", pcap_dump_open_append(p, "text"));
	report(p, "full", pcap_dump_open(p, "/dev/full"));
	FILE *stream = fopen("stream.pcap", "w");
	fputs("HEAD", stream);
	pcap_dumper_t *dumper = pcap_dump_fopen(p, stream);
	pcap_dump((u_char *)dumper, &header, (const u_char *)"abcd");
	printf("own stream: %s, at %ld\n", yes(pcap_dump_file(dumper) == stream), pcap_dump_ftell(dumper));
	pcap_dump_close(dumper);
	print_file("stream.pcap");
	/* The test has redirected standard output to a file. */
	fflush(stdout);
	int saved = dup(1);
	dup2(open("stdout.pcap", O_WRONLY | O_CREAT, 0600), 1);
	dumper = pcap_dump_open(p, "-");
	pcap_dump((u_char *)dumper, &header, (const u_char *)"abcd");
	int same = pcap_dump_file(dumper) == stdout;
	pcap_dump_flush(dumper);
	dup2(saved, 1);
	printf("standard output: %s\n", yes(same));
	print_file("stdout.pcap");
	pcap_close(dead);
	pcap_close(nano);
	pcap_close(p);
	return 0;
}
