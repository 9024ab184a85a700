/* Many handles opened and closed: no descriptor and no thread remains. */
#include <dirent.h>
#include <linux/netlink.h>
#include <sys/socket.h>
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

/* Counts the sockets by which this process asks the kernel for the members of groups. All
   handles in a process must share one such socket. */
static int diagnoses(void)
{
	int count = 0;
	for (int fd = 0; fd < 1024; fd++) {
		int domain = 0, protocol = 0;
		socklen_t len = sizeof(int);
		getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len);
		getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len);
		count += domain == AF_NETLINK && protocol == NETLINK_SOCK_DIAG;
	}
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
		/* A program may have a thousand handles. The exact number of a handle's descriptors is not
		   specified, but it must be small. */
		int more = entries("/proc/self/fd") - before, shared = diagnoses();
		printf("open: few descriptors %s, %d threads more\n",
		       yes(shared <= 1 && more - shared <= 4 * HANDLES), entries("/proc/self/task") - threads);
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
