/* A device that goes down and up while its reader is in another network namespace, or can't open files. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include "../wire.h"

enum { NO_FILES = 1, ELSEWHERE = 2 };

struct reader {
	pcap_t *p;
	int where;
};

static void *read_one(void *argument)
{
	struct reader *reader = argument;
	unsigned count = 0;
	/* Only this thread changes its namespace. */
	if (reader->where & ELSEWHERE && unshare(CLONE_NEWNET) != 0)
		fail("unshare", strerror(errno));
	int rc = pcap_loop(reader->p, 1, count_packet, (u_char *)&count);
	printf("  %d [%s] %u\n", rc, rc < 0 ? pcap_geterr(reader->p) : "", count);
	return NULL;
}

/* The limit on open files, set so low that the process can't open any file. */
static struct rlimit files;

static void limit_files(int limited)
{
	struct rlimit limit = { limited ? 3 : files.rlim_cur, files.rlim_max };
	setrlimit(RLIMIT_NOFILE, &limit);
}

static void while_waiting(int version, int port, int where)
{
	int control = socket(AF_INET, SOCK_DGRAM, 0);
	pthread_t thread;
	struct reader reader = { opened(far, version), where };
	printf("version %d%s%s\n", version, where & NO_FILES ? ", no more files" : "",
	       where & ELSEWHERE ? ", in another namespace" : "");
	pthread_create(&thread, NULL, read_one, &reader);
	sleep_ms(settled());
	limit_files(where & NO_FILES);
	set_up_by(control, far, 0);
	sleep_ms(settled());
	set_up_by(control, far, 1);
	send_until(port, reader.p, 1);
	pthread_join(thread, NULL);
	limit_files(0);
	pcap_close(reader.p);
	close(control);
}

int main(void)
{
	int port = port_of(near);
	getrlimit(RLIMIT_NOFILE, &files);
	for (int version = 2; version <= 3; version++) {
		for (int where = 0; where <= (NO_FILES | ELSEWHERE); where++)
			while_waiting(version, port, where);
	}
	return 0;
}
