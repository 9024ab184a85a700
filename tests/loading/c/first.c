/* Makes the first call of a process while another thread loads a plugin that makes a call too.
   Usage: first PLUGIN same|other. Both calls are of the same function, or of different functions.
   */
#include <dlfcn.h>
#include <pcap/pcap.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LIMIT_SECONDS = 60 };

static atomic_int loading, calling, returned;

/* Whether the main thread, whose thread id is getpid(), is waiting. */
static int main_waits(void)
{
	char path[64], state = 0;
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", getpid());
	FILE *stat = fopen(path, "r");
	if (stat) {
		(void)!fscanf(stat, "%*d (%*[^)]) %c", &state);
		fclose(stat);
	}
	return state == 'S';
}

/* The plugin's constructor calls this function while it holds the loader's lock. The function
   returns when the main thread waits in its call for that lock, or when the call has ended without
   the lock. */
void plugin_is_loading(void)
{
	atomic_store(&loading, 1);
	while (!atomic_load(&calling))
		sched_yield();
	while (!atomic_load(&returned) && !main_waits())
		sched_yield();
}

static void *load(void *path)
{
	return dlopen(path, RTLD_NOW);
}

int main(int argc, char **argv)
{
	pthread_t thread;
	void *plugin = NULL;
	alarm(LIMIT_SECONDS);
	if (argc < 3 || pthread_create(&thread, NULL, load, argv[1]))
		return 1;
	while (!atomic_load(&loading))
		sched_yield();
	atomic_store(&calling, 1);
	if (strcmp(argv[2], "same") == 0)
		(void)pcap_lib_version();
	else
		(void)pcap_datalink_val_to_name(DLT_EN10MB);
	atomic_store(&returned, 1);
	pthread_join(thread, &plugin);
	printf("%s\n", pcap_lib_version());
	return plugin ? 0 : 2;
}
