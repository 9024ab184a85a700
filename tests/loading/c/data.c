/* Uses libpcap's two data symbols. The loader copies these symbols into a program that isn't
   position-independent. */
#include <pcap/pcap.h>
#include <pcap/namedb.h>
#include <stdio.h>

struct eproto {
	const char *name;
	unsigned short number;
};
extern char pcap_version[];
extern struct eproto eproto_db[];

int main(void)
{
	printf("%s %s\n", pcap_version, pcap_lib_version());
	for (struct eproto *entry = eproto_db; entry->name; entry++)
		printf("%s %#x %#x\n", entry->name, entry->number, pcap_nametoeproto(entry->name));
	return 0;
}
