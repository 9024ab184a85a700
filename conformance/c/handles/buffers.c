/* Buffer sizes: the result of activation with several snapshot lengths and modes. */
#include "../wire.h"

/* The smallest rings have one block. This time is so long that all packets are in the block
   before the kernel passes it on, even if the sender waits for the processor. Otherwise the last
   packets would be lost. */
enum { BLOCK_MS = 250 };

static void open_with(int port, const char *device, int version, int snaplen, int buffer)
{
	pcap_t *p = created(device, version);
	pcap_set_snaplen(p, snaplen);
	pcap_set_buffer_size(p, buffer);
	pcap_set_timeout(p, BLOCK_MS);
	int rc = pcap_activate(p);
	printf("%s, version %d, snaplen %d, buffer %d: %d [%s]", device, version, snaplen, buffer, rc, pcap_geterr(p));
	if (rc == 0) {
		unsigned count = 0;
		printf(", %d", pcap_bufsize(p));
		send_numbered(port, 0, 3);
		/* The any device receives a packet both when it is sent and when it arrives. */
		settle(p, strcmp(device, "any") == 0 ? 6 : 3);
		if (version == 3)
			sleep_ms(BLOCK_MS);
		printf(", read %d", drain(p, count_packet, &count));
	}
	printf("\n");
	pcap_close(p);
}

int main(void)
{
	static const int snaplens[] = { 64, 96, 1514, 65535, 262144 }, buffers[] = { 1, 4096, 100000, 1 << 20, 8 << 20 };
	int port = port_of(near);
	for (int version = 2; version <= 3; version++)
		for (int i = 0; i < 5; i++)
			for (int j = 0; j < 5; j++)
				if ((i + j) % (version == 2 ? 2 : 4) == 0 || (j == 0 && version == 2))
					open_with(port, j % 2 ? "any" : far, version, snaplens[i], buffers[j]);
	return 0;
}
