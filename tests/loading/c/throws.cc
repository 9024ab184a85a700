/* Leaves pcap_loop() and pcap_dispatch() by a C++ exception, then continues to read. */
#include <stdexcept>
#include "handle.h"

static void leave(u_char *user, const struct pcap_pkthdr *, const u_char *)
{
	++*reinterpret_cast<int *>(user);
	throw std::runtime_error("enough");
}

static bool thrown(pcap_t *p, int round, int *seen)
{
	u_char *user = reinterpret_cast<u_char *>(seen);
	try {
		for (int idle = 0; idle < 100; idle++)
			if ((round % 2 ? pcap_loop(p, 1, leave, user) : pcap_dispatch(p, -1, leave, user)) < 0)
				break;
	} catch (const std::runtime_error &error) {
		return std::string(error.what()) == "enough";
	}
	return false;
}

int main(int argc, char **argv)
{
	const char *source = argc > 1 ? argv[1] : "";
	int seen = 0, caught = 0;
	pcap_t *p = open_source(source);
	if (!p)
		return 1;
	for (int round = 0; round < 4; round++) {
		send_some(source, 4);
		caught += thrown(p, round, &seen);
	}
	send_some(source, 4);
	printf("caught %d times, rest %d\n", caught, read_rest(p, 4) > 0);
	pcap_close(p);
	return caught == 4 && seen == 4 ? 0 : 2;
}
