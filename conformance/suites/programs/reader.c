/* Says which file has the function by which an activated handle is read: the first word of a pcap_t. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

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
	printf("%s\n", place.dli_fname);
	((close_handle *)function(library, "pcap_close"))(handle);
	return 0;
}
