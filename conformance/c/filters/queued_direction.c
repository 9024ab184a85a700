/* Filters on a packet's direction, which only the kernel can check, set while packets are queued. */
#include "../wire.h"
#include "../tags.h"
#include "../queued.h"

int main(void)
{
	static const char *const expressions[] = {
		"inbound", "outbound", "inbound and vlan", "not inbound", "outbound and ip",
	};
	int in = port_of(near), out = port_of(far);
	for (int version = 2; version <= 3; version++)
		for (size_t i = 0; i < sizeof expressions / sizeof expressions[0]; i++)
			replace(in, out, version, expressions[i]);
	return 0;
}
