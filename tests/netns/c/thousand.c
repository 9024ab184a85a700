/* Opens and closes a thousand handles in threads, with and without a group. Prints the resources
   that remain. Usage: thousand DEVICE. */
#include <dirent.h>
#include <pcap/fanout.h>
#include <pcap/pcap.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 20, HANDLES = 50 };

static const char *device;

static void *open_and_close(void *group)
{
	for (int i = 0; i < HANDLES; i++) {
		char errbuf[PCAP_ERRBUF_SIZE];
		pcap_t *p = pcap_create(device, errbuf);

		if (group != NULL)
			pcap_fanout(p, 7, "lb");
		pcap_set_buffer_size(p, 1 << 20);
		pcap_set_immediate_mode(p, i % 3 == 0);
		if (pcap_activate(p) < 0) {
			printf("pcap_activate: %s\n", pcap_geterr(p));
			exit(1);
		}
		pcap_close(p);
	}
	return NULL;
}

static int descriptors(void)
{
	int count = 0;
	DIR *directory = opendir("/proc/self/fd");

	while (readdir(directory) != NULL)
		count++;
	closedir(directory);
	return count;
}

/* Counts the lines of a file that contain `part`. */
static int lines(const char *path, const char *part)
{
	char line[512];
	int count = 0;
	FILE *file = fopen(path, "r");

	while (fgets(line, sizeof line, file) != NULL)
		count += strstr(line, part) != NULL;
	fclose(file);
	return count;
}

static long resident_kib(void)
{
	long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	if (fscanf(file, "%*s %ld", &pages) != 1)
		pages = 0;
	fclose(file);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];

	device = argc > 1 ? argv[1] : "lo";
	open_and_close(NULL);
	int before = descriptors();
	long resident = resident_kib();
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, open_and_close, i % 2 ? threads : NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("left: %d descriptors, %d mappings of rings, %d packet sockets, %s memory\n", descriptors() - before,
	       lines("/proc/self/maps", "socket:"), lines("/proc/self/net/packet", " 0003 "),
	       resident_kib() - resident < 4096 ? "no" : "much");
	return 0;
}
