/* Joins a group after another user has planted pipes or links among its pages. Usage: planted
   DEVICE GROUP pipe|link. */
#include "scene.h"
#include <net/if.h>
#include <sys/stat.h>

enum { NUMBERS = 4 };

static const char VICTIM[] = "/run/victim", TEXT[] = "precious";

/* Creates the directory of the group's pages, which must not exist, and changes to it. */
static void enter_shelf(const char *device, const char *group)
{
	char path[128];
	struct stat netns;

	if (stat("/proc/self/ns/net", &netns) != 0)
		fail("stat", "/proc/self/ns/net");
	mkdir("/run/fanpcap", 0755);
	mkdir("/run/fanpcap/v7", 0755);
	snprintf(path, sizeof(path), "/run/fanpcap/v7/%lu", (unsigned long)netns.st_ino);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "/run/fanpcap/v7/%lu/%u.%s", (unsigned long)netns.st_ino,
	         if_nametoindex(device), group);
	if (mkdir(path, 0755) != 0 || chdir(path) != 0)
		fail("mkdir", path);
}

static void plant(const char *kind, const char *name)
{
	int failed = strcmp(kind, "pipe") == 0 ? mkfifo(name, 0666) : symlink(VICTIM, name);

	if (failed)
		fail(kind, name);
}

/* Plants pipes or links at the name of another member's page, and at the names that this process
   will use for its own page. */
static void plant_all(const char *kind)
{
	char name[32];

	plant(kind, "1.0");
	for (int number = 0; number < NUMBERS; number++) {
		snprintf(name, sizeof(name), "%d.%d", getpid(), number);
		plant(kind, name);
		snprintf(name, sizeof(name), ".%d.%d", getpid(), number);
		plant(kind, name);
	}
}

int main(int argc, char **argv)
{
	char text[64] = "";
	FILE *victim;
	pcap_t *p;

	if (argc != 4)
		fail("usage", "planted DEVICE GROUP pipe|link");
	victim = fopen(VICTIM, "w");
	if (victim == NULL || fputs(TEXT, victim) < 0 || fclose(victim) != 0)
		fail("fopen", VICTIM);
	enter_shelf(argv[1], argv[2]);
	plant_all(argv[3]);

	p = opened(argv[1], atoi(argv[2]), "hash");
	printf("members %llu\n", (unsigned long long)fanout_stats(p).members);
	pcap_close(p);
	victim = fopen(VICTIM, "r");
	if (victim == NULL || fgets(text, sizeof(text), victim) == NULL || strcmp(text, TEXT) != 0)
		fail(VICTIM, "was overwritten");
	puts("all is well");
	return 0;
}
