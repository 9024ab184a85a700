/* pcap_next_etherent(): valid and invalid lines of an ethers file. */
#include "../wire.h"
#include <pcap/namedb.h>

int main(void)
{
	FILE *file = fopen("ethers", "w+");
	fputs("# comment\n02:00:00:00:00:0a near\n\n2:0:0:0:0:b far # behind it\nzz:00 bad\n1:2:3:4:5 short\n"
	      "  ff:ff:ff:ff:ff:ff   all\n00:11:22:33:44:55 a-name-that-is-quite-long-but-still-below-eighty-characters-in-"
	      "all-of-it\n00:11:22:33:44:56", file);
	rewind(file);
	for (struct pcap_etherent *entry; (entry = pcap_next_etherent(file));) {
		print_bytes(entry->addr, sizeof entry->addr);
		printf(" %s\n", entry->name);
	}
	printf("at its end %s\n", yes(feof(file)));
	fclose(file);
	return 0;
}
