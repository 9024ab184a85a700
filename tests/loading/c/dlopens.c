/* Opens the library named by its argument at run time, twice, and reads a savefile with it. */
#include <dlfcn.h>
#include <pcap/pcap.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	for (int round = 0; argc > 2 && round < 2; round++) {
		char errbuf[PCAP_ERRBUF_SIZE] = "";
		void *library = dlopen(argv[1], round ? RTLD_NOW | RTLD_GLOBAL : RTLD_LAZY);
		if (!library) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		const char *(*version)(void) = (const char *(*)(void))dlsym(library, "pcap_lib_version");
		pcap_t *(*open)(const char *, char *) =
			(pcap_t * (*)(const char *, char *)) dlsym(library, "pcap_open_offline");
		const u_char *(*next)(pcap_t *, struct pcap_pkthdr *) =
			(const u_char *(*)(pcap_t *, struct pcap_pkthdr *))dlsym(library, "pcap_next");
		void (*close)(pcap_t *) = (void (*)(pcap_t *))dlsym(library, "pcap_close");
		if (!version || !open || !next || !close)
			return 2;
		struct pcap_pkthdr header;
		pcap_t *p = open(argv[2], errbuf);
		if (!p || !next(p, &header))
			return 3;
		printf("%s, %u\n", version(), header.caplen);
		close(p);
		dlclose(library);
	}
	return 0;
}
