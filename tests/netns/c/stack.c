/* A thread with a stack of KIB KiB opens a handle in a group and closes it. Usage: stack DEVICE KIB
   MODE. */
#include "scene.h"
#include <pthread.h>

static char **arguments;

static void *work(void *unused)
{
	pcap_close(opened(arguments[1], 7, arguments[3]));
	return unused;
}

int main(int argc, char **argv)
{
	pthread_attr_t attributes;
	pthread_t thread;

	if (argc != 4)
		fail("usage", "stack DEVICE KIB MODE");
	arguments = argv;
	pthread_attr_init(&attributes);
	if (pthread_attr_setstacksize(&attributes, strtoul(argv[2], NULL, 10) << 10) != 0)
		fail("pthread_attr_setstacksize", argv[2]);
	if (pthread_create(&thread, &attributes, work, NULL) != 0)
		fail("pthread_create", argv[2]);
	pthread_join(thread, NULL);
	puts("done");
	return 0;
}
