/* A handle on f1^f2 whose first activation fails on f2. Usage: merged_retry missing|taken. Prints
   the results of the activations and the packets read after each. An earlier member is in f1's
   group. */
#include "wires.h"

enum { FRAMES = 20, TAKEN = 4 };

static void run(const char *command)
{
	if (system(command) != 0)
		fail(command, "failed");
}

/* The numbers of packets that the member and the handle P have read of EXPECTED packets. Packets
   that have not come after two seconds count as missing. */
struct counts {
	unsigned member, p;
};

static struct counts read_all(pcap_t *member, pcap_t *p, unsigned expected)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	struct counts counts = { 0 };
	double end = now() + 2;

	if (pcap_setnonblock(member, 1, errbuf) != 0 || (p != NULL && pcap_setnonblock(p, 1, errbuf) != 0))
		fail("pcap_setnonblock", errbuf);
	while (counts.member + counts.p < expected && now() < end) {
		if (pcap_dispatch(member, -1, count_packet, (u_char *)&counts.member) < 0)
			fail("pcap_dispatch", pcap_geterr(member));
		if (p != NULL && pcap_dispatch(p, -1, count_packet, (u_char *)&counts.p) < 0)
			fail("pcap_dispatch", pcap_geterr(p));
		sleep_ms(1);
	}
	return counts;
}

/* Sends FRAMES frames on a device. Frames on f1 go to the members of f1's group in turn. */
static void share(const char *when, int port, pcap_t *member, pcap_t *p)
{
	struct counts counts;

	for (int i = 0; i < FRAMES; i++)
		send_tag(port, i);
	counts = read_all(member, p, FRAMES);
	printf("%s: %llu members, %u and %u packets\n", when, (unsigned long long)fanout_stats(member).members,
	       counts.member, counts.p);
}

/* A member of the group that f2 would join. */
static pcap_t *holder;

static void hinder(int missing)
{
	if (missing)
		run("ip link set f2 down && ip link set f2 name hidden");
	else
		holder = opened("f2", TAKEN, "hash");
}

static void help(int missing)
{
	if (!missing) {
		pcap_close(holder);
		return;
	}
	run("ip link set hidden name f2 && ip link set f2 up");
	run("until ip -o link show n2 | grep -q 'state UP'; do sleep 0.01; done");
}

int main(int argc, char **argv)
{
	int ports[2] = { port_of("n1"), port_of("n2") }, missing = argc == 2 && strcmp(argv[1], "missing") == 0;
	pcap_t *member = opened("f1", 0, NULL), *p = created("f1^f2");
	int status;

	share("alone", ports[0], member, NULL);
	hinder(missing);
	status = pcap_activate(p);
	printf("first: %d %s\n", status, pcap_geterr(p));
	share("refused", ports[0], member, NULL);
	help(missing);
	status = pcap_activate(p);
	printf("then: %d %s\n", status, status != 0 ? pcap_geterr(p) : "");
	if (status < 0)
		return 1;
	share("joined", ports[0], member, p);
	share("of f2", ports[1], member, p);
	pcap_close(p);
	pcap_close(member);
	return 0;
}
