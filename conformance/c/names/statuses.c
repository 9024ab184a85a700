/* Texts of status codes and of errno's values, also when several threads ask for them. */
#include <pthread.h>
#include "../wire.h"

static void *unknown(void *number)
{
	printf("%s, %s\n", pcap_statustostr(*(int *)number), pcap_strerror(*(int *)number));
	return NULL;
}

int main(void)
{
	pthread_t thread;
	for (int status = -20; status <= 6; status++)
		printf("%d: %s\n", status, pcap_statustostr(status));
	for (int error = -1; error < 140; error++)
		printf("%d: %s\n", error, pcap_strerror(error));
	const char *mine = pcap_statustostr(-777);
	pthread_create(&thread, NULL, unknown, &(int){ -888 });
	pthread_join(thread, NULL);
	printf("%s\n", mine);
	return 0;
}
