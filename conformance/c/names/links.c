/* Names and descriptions of link types. */
#include "../wire.h"

int main(void)
{
	static const char *const names[] = { "EN10MB", "en10mb", "DLT_EN10MB", "LINUX_SLL2", "RAW", "nosuch", "" };
	for (int link = -1; link < 310; link++) {
		const char *name = pcap_datalink_val_to_name(link), *text = pcap_datalink_val_to_description(link);
		printf("%d: %s, %s, %s\n", link, name ? name : "none", text ? text : "none",
		       pcap_datalink_val_to_description_or_dlt(link));
		if (name && pcap_datalink_name_to_val(name) != link)
			printf("  which is %d\n", pcap_datalink_name_to_val(name));
	}
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		printf("%s: %d\n", names[i], pcap_datalink_name_to_val(names[i]));
	return 0;
}
