/* A filter for which the kernel has no memory runs in user space, with a warning on standard error. */
#include <fcntl.h>
#include "../wire.h"

static void limit_option_memory(const char *bytes)
{
	int fd = open("/proc/sys/net/core/optmem_max", O_WRONLY);
	if (fd < 0 || write(fd, bytes, strlen(bytes)) < 0)
		printf("optmem_max: %s\n", strerror(errno));
	close(fd);
}

int main(void)
{
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		limit_option_memory("131072");
		pcap_t *p = opened(far, version);
		/* A limit that is too small for this filter, but large enough for the filter that rejects all
		   packets. */
		limit_option_memory("300");
		filter(p, "ether[17] & 1 == 1 and (udp port 1 or udp port 2 or ether proto 0x88b5 or tcp port 5 or tcp port 6)");
		limit_option_memory("131072");
		send_numbered(port, 0, 10);
		settle(p, 10);
		printf("version %d:", version);
		printf(" -> %d\n", drain(p, print_number, NULL));
		print_stats(p);
		pcap_close(p);
	}
	return 0;
}
