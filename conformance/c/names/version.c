/* The library's version, as text and as data symbol. */
#include "../wire.h"

extern const char pcap_version[];

int main(void)
{
	int major = 0, minor = 0, patch = 0;
	const char *version = pcap_lib_version();
	printf("%s\n", version);
	printf("%d", sscanf(version, "libpcap version %d.%d.%d ", &major, &minor, &patch));
	printf(" %d.%d.%d, the same text again %s\n", major, minor, patch, yes(version == pcap_lib_version()));
	printf("%s\n", pcap_version);
	return 0;
}
