/* The resources of a process: descriptors, mapped rings, threads, and its members' pages. */
#ifndef resources_h
#define resources_h

#include <dirent.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DESCRIPTORS = 512 };

struct resources {
	char open[DESCRIPTORS];
	int mappings, threads, pages;
};

static inline int entries_of(const char *path, char *numbers)
{
	DIR *directory = opendir(path);
	struct dirent *entry;
	int count = 0;

	if (directory == NULL)
		return -1;
	while ((entry = readdir(directory)) != NULL) {
		int number = atoi(entry->d_name);

		if (entry->d_name[0] == '.')
			continue;
		count++;
		/* Leaves out the descriptor of the directory itself, which is closed below. */
		if (numbers != NULL && number < DESCRIPTORS && number != dirfd(directory))
			numbers[number] = 1;
	}
	closedir(directory);
	return count;
}

/* Counts mappings of sockets, which are rings, and mappings of nameless files. */
static inline int count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int count = 0;

	while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
		count += strstr(line, "socket:") != NULL || strstr(line, "anon_inode") != NULL ||
			 strstr(line, "memfd:") != NULL || strstr(line, "(deleted)") != NULL;
	if (maps != NULL)
		fclose(maps);
	return count;
}

static inline int count_matches(const char *pattern)
{
	glob_t found;
	int count = glob(pattern, GLOB_BRACE, NULL, &found) == 0 ? (int)found.gl_pathc : 0;

	globfree(&found);
	return count;
}

/* Counts members' pages in this network namespace, and the pages' directories, in both places where
   a machine may keep them. */
static inline int count_pages(void)
{
	char pattern[96];
	struct stat netns;
	int count;

	if (stat("/proc/self/ns/net", &netns) != 0)
		return -1;
	snprintf(pattern, sizeof(pattern), "{/run,/dev/shm}/fanpcap/v7/%lu/*", (unsigned long)netns.st_ino);
	count = count_matches(pattern);
	strcat(pattern, "/*");
	return count + count_matches(pattern);
}

static inline void take_stock(struct resources *now)
{
	memset(now, 0, sizeof(*now));
	entries_of("/proc/self/fd", now->open);
	now->mappings = count_mappings();
	now->threads = entries_of("/proc/self/task", NULL);
	now->pages = count_pages();
}

/* Writes a word for each resource that is in `now` but was not in `before`, except pages. */
static inline void tell_leaks(const struct resources *before, const struct resources *now, char *words,
			      size_t size)
{
	words[0] = '\0';
	for (int fd = 0; fd < DESCRIPTORS; fd++) {
		char path[32], target[64] = "";
		size_t len = strlen(words);

		if (!now->open[fd] || before->open[fd])
			continue;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, target, sizeof(target) - 1) < 0)
			target[0] = '\0';
		target[strcspn(target, "[ \t")] = '\0';
		snprintf(words + len, size - len, "leaks-descriptor(%s) ", target);
	}
	if (now->mappings > before->mappings)
		strncat(words, "leaks-mapping ", size - strlen(words) - 1);
	if (now->threads > before->threads)
		strncat(words, "leaks-thread ", size - strlen(words) - 1);
}

#endif
