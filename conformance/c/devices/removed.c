/* A device that is removed while its handle waits, has packets, or doesn't block: the results and messages. */
#include <pthread.h>
#include "../wire.h"

static int run(const char *command)
{
	int rc = system(command);
	if (rc != 0)
		fail(command, "failed");
	return rc;
}

static void make(void)
{
	run("ip link add da type veth peer name db");
	change("ip link set da arp off up && ip link set db arp off up", "db", "UP");
}

static void *remove_later(void *unused)
{
	(void)unused;
	sleep_ms(100);
	run("ip link del da");
	return NULL;
}

static void ended(pcap_t *p, const char *what, int rc)
{
	printf("  %s: %d [%s]\n", what, rc, rc < 0 ? pcap_geterr(p) : "");
}

static void while_waiting(int version, int call)
{
	struct pcap_pkthdr *header;
	const u_char *bytes;
	pthread_t thread;
	make();
	pcap_t *p = opened("db", version);
	pthread_create(&thread, NULL, remove_later, NULL);
	if (call == 0)
		ended(p, "loop", pcap_loop(p, -1, print_number, NULL));
	else if (call == 1)
		ended(p, "dispatch", pcap_dispatch(p, -1, print_number, NULL));
	else
		ended(p, "next_ex", pcap_next_ex(p, &header, &bytes));
	pthread_join(thread, NULL);
	ended(p, "dispatch again", pcap_dispatch(p, -1, print_number, NULL));
	print_stats(p);
	ended(p, "inject", pcap_inject(p, (unsigned char[SMALLEST]){ 2 }, SMALLEST));
	pcap_close(p);
}

static void with_packets(int version)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	make();
	pcap_t *p = opened("db", version);
	pcap_setnonblock(p, 1, errbuf);
	int port = port_of("da");
	send_numbered(port, 0, 5);
	close(port);
	settle(p, 5);
	run("ip link del da");
	printf(" ");
	int rc = pcap_dispatch(p, 2, print_number, NULL);
	printf(" -> %d", rc);
	rc = pcap_dispatch(p, 10, print_number, NULL);
	printf(" -> %d\n", rc);
	for (int i = 0; i < 3; i++)
		ended(p, "then", pcap_dispatch(p, -1, print_number, NULL));
	printf("  required timeout %s\n", yes(pcap_get_required_select_timeout(p) != NULL));
	pcap_close(p);
}

int main(void)
{
	for (int version = 2; version <= 3; version++) {
		printf("version %d\n", version);
		for (int call = 0; call < 3; call++)
			while_waiting(version, call);
		with_packets(version);
	}
	return 0;
}
