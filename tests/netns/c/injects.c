/* Sends frames by a handle on DEVICE. Usage: injects DEVICE few|flood|long. `few`: three frames of
   60 bytes, by both calls. `flood`: stops itself, and then sends frames until one is refused.
   `long`: one of 70,000 bytes. Prints the results, and the error if there is one. */
#include "scene.h"
#include <signal.h>

enum { FRAME = 60, TOO_LONG = 70000, FLOOD = 100000 };

int main(int argc, char **argv)
{
	static unsigned char frame[TOO_LONG] = { 2, 0, 0, 0, 0, 0x0b, 2, 0, 0, 0, 0, 0x0a, 0x88, 0xb5 };
	pcap_t *p = created(argc == 3 ? argv[1] : "");
	const char *what = argc == 3 ? argv[2] : "";
	int one, two, three;

	if (pcap_activate(p) < 0)
		fail("pcap_activate", pcap_geterr(p));
	if (strcmp(what, "few") == 0) {
		one = pcap_inject(p, frame, FRAME);
		two = pcap_sendpacket(p, frame, FRAME);
		three = pcap_inject(p, frame, FRAME);
		printf("%d %d %d", one, two, three);
		if (one < 0)
			printf(", %s", pcap_geterr(p));
		printf("\n");
	} else if (strcmp(what, "long") == 0) {
		one = pcap_inject(p, frame, sizeof(frame));
		printf("%d, %s\n", one, pcap_geterr(p));
	} else {
		raise(SIGSTOP);
		for (one = 0; one < FLOOD && pcap_inject(p, frame, FRAME) == FRAME;)
			one++;
		printf("%d, %s\n", one, pcap_geterr(p));
	}
	pcap_close(p);
	return 0;
}
