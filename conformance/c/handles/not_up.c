/* Devices that are down: what activation says, and that a new handle can be opened once they are up. */
#include "../wire.h"

static void set_up(const char *device, int up)
{
	struct ifreq request = { 0 };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	strcpy(request.ifr_name, device);
	ioctl(fd, SIOCGIFFLAGS, &request);
	request.ifr_flags = (short)(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
	if (ioctl(fd, SIOCSIFFLAGS, &request) != 0)
		fail("SIOCSIFFLAGS", strerror(errno));
	close(fd);
}

int main(void)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	set_up(far, 0);
	for (int version = 2; version <= 3; version++) {
		pcap_t *p = created(far, version);
		int rc = pcap_activate(p);
		printf("version %d: %d [%s] %s\n", version, rc, pcap_geterr(p), pcap_statustostr(rc));
		pcap_close(p);
		set_up(far, 1);
		p = created(far, version);
		rc = pcap_activate(p);
		printf("  up: %d [%s]\n", rc, rc ? pcap_geterr(p) : "");
		pcap_close(p);
		set_up(far, 0);
	}
	pcap_t *p = pcap_open_live(far, 100, 0, 10, errbuf);
	printf("open_live: %s [%s]\n", yes(p != NULL), errbuf);
	if (p)
		pcap_close(p);
	return 0;
}
