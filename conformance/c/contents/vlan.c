/* VLAN tags that the kernel has removed are inserted again: 802.1Q, 802.1ad, stacked, VID 0. */
#include "../wire.h"
#include "../tags.h"
#include "../taggings.h"

int main(void)
{
	static const int snaplens[] = { 262144, 96, 16, 15, 14, 13, 12 };
	int in = port_of(near), out = port_of(far);
	for (int version = 2; version <= 3; version++) {
		read_all("received", version, 262144, NULL, in, far);
		read_all("received", version, 96, "greater 20", in, far);
		read_all("sent", version, 96, NULL, out, far);
	}
	for (size_t i = 0; i < sizeof snaplens / sizeof snaplens[0]; i++) {
		read_all("received", 3, snaplens[i], NULL, in, far);
		read_all("received", 3, snaplens[i], "ether host 2:0:0:0:0:b", in, far);
	}
	return 0;
}
