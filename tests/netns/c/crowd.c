/* Many members in one process, with small rings. Reads commands line by line on standard input.
   Usage: crowd DEVICE GROUP.

     join COUNT    handles join until there are COUNT; prints "COUNT members", or how many there are,
                   then why the next was refused
     look          each handle reads its waiting packets; prints "PACKETS packets"
     close N       closes handle N; prints "COUNT members" */
#include "scene.h"
#include <sys/resource.h>

enum { MOST = 300 };

static pcap_t *handles[MOST];
static int count;
static unsigned long packets;

static void take(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user;
	(void)header;
	(void)bytes;
	packets++;
}

/* Opens a handle that joins. If the join is refused, prints the reason and returns null. */
static pcap_t *joined(const char *device, int group)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	pcap_t *p = created(device);

	pcap_set_snaplen(p, 64);
	pcap_set_buffer_size(p, 1 << 16);
	pcap_set_immediate_mode(p, 1);
	if (pcap_fanout(p, group, "flow") == 0 && pcap_activate(p) >= 0) {
		if (pcap_setnonblock(p, 1, errbuf) != 0)
			fail("pcap_setnonblock", errbuf);
		/* Reads once, so that the member takes its share. */
		pcap_dispatch(p, 1, take, NULL);
		return p;
	}
	printf("%d members: %s\n", count, pcap_geterr(p));
	pcap_close(p);
	return NULL;
}

static void join(const char *device, int group, int most)
{
	while (count < most) {
		pcap_t *p = joined(device, group);

		if (p == NULL)
			return;
		handles[count++] = p;
		/* Pauses, because the kernel can't handle thousands of new filters at once. */
		usleep(10000);
	}
	printf("%d members\n", count);
}

static void look(void)
{
	packets = 0;
	for (int n = 0; n < count; n++)
		while (pcap_dispatch(handles[n], -1, take, NULL) > 0)
			;
	printf("%lu packets\n", packets);
}

static void close_one(int n)
{
	pcap_close(handles[n]);
	memmove(handles + n, handles + n + 1, (MOST - n - 1) * sizeof(*handles));
	printf("%d members\n", --count);
}

int main(int argc, char **argv)
{
	struct rlimit files;
	char line[64];
	int n;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 3)
		fail("usage", "crowd DEVICE GROUP");
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	puts("ready");
	while (fgets(line, sizeof(line), stdin) != NULL) {
		if (sscanf(line, "join %d", &n) == 1 && n < MOST)
			join(argv[1], atoi(argv[2]), n);
		else if (sscanf(line, "close %d", &n) == 1 && n < count)
			close_one(n);
		else
			look();
	}
	return 0;
}
