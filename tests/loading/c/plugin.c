/* A plugin that uses the library while it is being loaded. */
#include <pcap/pcap.h>

void plugin_is_loading(void);

__attribute__((constructor)) static void start(void)
{
	plugin_is_loading();
	(void)pcap_lib_version();
}
