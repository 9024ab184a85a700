/* Filters on VLAN tags, which the kernel stores outside the packet, set while packets are queued. */
#include "../wire.h"
#include "../tags.h"
#include "../queued.h"

int main(void)
{
	static const char *const expressions[] = {
		"vlan", "vlan 100", "vlan 200", "not vlan", "vlan and ip", "vlan 100 or ip", "ip", "ether[12:2] = 0x0800",
		"ether[12:2] = 0x8100", "udp dst port 2000", "vlan and udp dst port 2000", "len > 120", "greater 130",
	};
	int in = port_of(near), out = port_of(far);
	for (int version = 2; version <= 3; version++)
		for (size_t i = 0; i < sizeof expressions / sizeof expressions[0]; i++)
			if (version == 3 || i % 3 == 0)
				replace(in, out, version, expressions[i]);
	return 0;
}
