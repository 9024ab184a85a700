/* A process of another user, who may read all pages but write none. Opens each file below
   DIRECTORY as soon as the file appears. Takes each lock on the file, waiting for it if
   necessary, and keeps the locks. Usage: lockhog DIRECTORY. Prints "has NAME" for each file. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOBODY = 65534, MOST = 4096 };

static char *seen[MOST];
static int count;

static void *hog(void *argument)
{
	struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1 };
	char *path = argument;
	int fd = open(path, O_RDONLY);

	if (fd < 0)
		return NULL;
	/* Ignores an error of the first lock: it is refused if the file is a directory. */
	fcntl(fd, F_OFD_SETLKW, &lock);
	if (flock(fd, LOCK_EX) == 0)
		printf("has %s\n", strrchr(path, '/') + 1);
	pause();
	return NULL;
}

static void try(const char *path)
{
	pthread_t thread;

	for (int i = 0; i < count; i++) {
		if (strcmp(seen[i], path) == 0)
			return;
	}
	if (count == MOST)
		return;
	seen[count] = strdup(path);
	if (pthread_create(&thread, NULL, hog, seen[count++]) != 0)
		exit(1);
}

static void walk(const char *path)
{
	DIR *directory = opendir(path);
	struct dirent *entry;

	while (directory != NULL && (entry = readdir(directory)) != NULL) {
		char inner[1024];
		struct stat about;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
		try(inner);
		if (lstat(inner, &about) == 0 && S_ISDIR(about.st_mode))
			walk(inner);
	}
	if (directory != NULL)
		closedir(directory);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc != 2 || setgroups(0, NULL) != 0 || setresgid(NOBODY, NOBODY, NOBODY) != 0 ||
	    setresuid(NOBODY, NOBODY, NOBODY) != 0)
		return 2;
	puts("ready");
	for (;;) {
		walk(argv[1]);
		usleep(2000);
	}
}
