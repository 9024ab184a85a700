/* Prints whether the device of an activated handle has an XDP program, and which file contains the
   function that reads the handle. The first word of a pcap_t is the address of this function. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *open_live(const char *, int, int, int, char *);
typedef void close_handle(void *);

static void *function(void *library, const char *name)
{
	void *address = dlsym(library, name);

	if (!address) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return address;
}

static const char *hook(const char *device)
{
	char command[64], line[4096] = "";
	FILE *ip;

	snprintf(command, sizeof command, "ip -o link show dev %s", device);
	ip = popen(command, "r");
	if (!ip || !fgets(line, sizeof line, ip)) {
		fprintf(stderr, "%s prints nothing\n", command);
		exit(1);
	}
	pclose(ip);
	return strstr(line, " xdp") ? "xdp" : "socket";
}

int main(int argc, char **argv)
{
	char error[256] = "";
	Dl_info place;
	void *library = dlopen("libpcap.so.0.8", RTLD_NOW);
	void *handle;

	if (argc != 2 || !library) {
		fprintf(stderr, "usage: reader DEVICE; %s\n", library ? "" : dlerror());
		return 2;
	}
	handle = ((open_live *)function(library, "pcap_open_live"))(argv[1], 65535, 0, 100, error);
	if (!handle) {
		fprintf(stderr, "%s\n", error);
		return 1;
	}
	if (!dladdr(*(void **)handle, &place)) {
		fprintf(stderr, "the first word is no function\n");
		return 1;
	}
	printf("%s %s\n", hook(argv[1]), place.dli_fname);
	((close_handle *)function(library, "pcap_close"))(handle);
	return 0;
}
