/* Many handles opened and closed: no descriptor and no thread is left behind. */
#include <dirent.h>
#include "../wire.h"

enum { HANDLES = 12 };

static int entries(const char *path)
{
	int count = 0;
	DIR *directory = opendir(path);
	for (struct dirent *entry; directory && (entry = readdir(directory));)
		count += entry->d_name[0] != '.';
	if (directory)
		closedir(directory);
	return count;
}

int main(void)
{
	pcap_t *handles[HANDLES];
	pcap_close(opened("lo", 3));
	int before = entries("/proc/self/fd"), threads = entries("/proc/self/task");
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < HANDLES; i++) {
			handles[i] = created(i % 3 ? far : "lo", 2 + i % 2);
			pcap_set_buffer_size(handles[i], 300000);
			activated(handles[i]);
		}
		/* A program may have a thousand of them: how many a handle takes is not said, but few. A
		   process may have one more. */
		printf("open: few descriptors %s, %d threads more\n",
		       yes(entries("/proc/self/fd") - before <= 4 * HANDLES + 1), entries("/proc/self/task") - threads);
		for (int i = 0; i < HANDLES; i++)
			pcap_close(handles[round ? HANDLES - 1 - i : i]);
		printf("closed: %d descriptors more\n", entries("/proc/self/fd") - before);
	}
	for (int i = 0; i < 12; i++) {
		char errbuf[PCAP_ERRBUF_SIZE];
		pcap_t *p = pcap_create(i % 2 ? "nodevice0" : "lo", errbuf);
		if (i % 3)
			pcap_activate(p);
		pcap_close(p);
	}
	printf("closed: %d descriptors more, %d threads more\n", entries("/proc/self/fd") - before,
	       entries("/proc/self/task") - threads);
	return 0;
}
