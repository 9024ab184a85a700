/* Promiscuous mode: the device's count of its users until the handle is closed; warnings of devices without the mode. */
#include "../wire.h"

static void print_promiscuity(const char *when)
{
	char line[4096], command[64];
	int number = -1;
	snprintf(command, sizeof command, "ip -d -o link show dev %s", far);
	FILE *ip = popen(command, "r");
	const char *at = ip && fgets(line, sizeof line, ip) ? strstr(line, "promiscuity ") : NULL;
	if (at)
		number = atoi(at + strlen("promiscuity "));
	pclose(ip);
	printf("  %s: %d\n", when, number);
}

static pcap_t *promiscuous(const char *device, int on)
{
	pcap_t *p = created(device, 3);
	printf("%s, %d: %d", device, on, pcap_set_promisc(p, on));
	int rc = pcap_activate(p);
	printf(", activation %d [%s]\n", rc, pcap_geterr(p));
	return p;
}

int main(void)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	print_promiscuity("first");
	pcap_t *plain = promiscuous(far, 0);
	print_promiscuity("plain");
	pcap_close(plain);
	pcap_t *one = promiscuous(far, 1);
	print_promiscuity("promiscuous");
	send_numbered(port_of(near), 0, 5);
	settle(one, 5);
	print_stats(one);
	pcap_close(one);
	print_promiscuity("closed");
	pcap_close(promiscuous("lo", 1));
	pcap_close(promiscuous("any", 1));
	pcap_t *live = pcap_open_live(far, 100, 1, 10, errbuf);
	print_promiscuity(errbuf);
	pcap_close(live);
	return 0;
}
