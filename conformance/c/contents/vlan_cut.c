/* Tagged frames with a snapshot length that ends before the tag: their length on the wire. */
#include "../wire.h"
#include "../tags.h"
#include "../taggings.h"

int main(void)
{
	static const int snaplens[] = { 11, 10, 4, 1 };
	int in = port_of(near);
	for (int version = 2; version <= 3; version++)
		for (size_t i = 0; i < sizeof snaplens / sizeof snaplens[0]; i++) {
			read_all("received", version, snaplens[i], NULL, in, far);
			read_all("received", version, snaplens[i], "greater 20", in, far);
		}
	return 0;
}
