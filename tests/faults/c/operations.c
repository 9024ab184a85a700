/* Repeats one operation while its first, second, third ... system call fails. Usage, under the
   tracer: operations OPERATION PASS DEVICE SENDER [GROUP]. With a group the handle is a member.
   Prints a line for each failure: its number, the call that failed, errno, the operation's
   status, what is wrong with its result, and its message. */
#define _GNU_SOURCE
#include "opening.h"
#include "reading.h"
#include "resources.h"

#include <sys/mman.h>
#include <sys/wait.h>

enum { LIMIT_SECONDS = 60 };

static const struct operation {
	const char *name;
	void (*run)(struct go *go);
} operations[] = {
	{ "load", load },
	{ "create", create_only },
	{ "open", open_handle },
	{ "open-live", open_live },
	{ "join-late", join_late },
	{ "setfilter", set_filter },
	{ "dispatch", dispatch_waiting },
	{ "dispatch-blocked", dispatch_blocked },
	{ "setnonblock", set_nonblock },
	{ "stats", read_stats },
	{ "fanout-stats", read_fanout_stats },
	{ "close", close_handle },
};

static void check_message(struct go *go)
{
	if (go->status >= 0)
		return;
	if (go->message[0] == '\0')
		wrong(go, "no-message");
	else if (strstr(go->message, strerror((int)go->fault->error)) == NULL)
		wrong(go, "no-reason");
}

static int pass_of(const char *name)
{
	static const char *const names[PASSES] = { "resources", "denied", "interrupted", "exhausted" };
	int pass = 0;

	while (pass < PASSES && strcmp(names[pass], name) != 0)
		pass++;
	return pass;
}

static void print_line(const struct go *go, int nth)
{
	const struct fault *fault = go->fault;

	printf("%d\t%s\t%s\t%d\t%s\t%s\n", nth, fault->happened ? fault->call : "none",
	       fault->happened ? strerrorname_np((int)fault->error) : "-", go->status,
	       go->wrong[0] != '\0' ? go->wrong : "-", go->message);
}

/* Runs the operation with one failure, then without a failure in the same process. If the call
   that failed should have removed pages, these pages may stay until the second run. */
static int go_twice(const struct operation *operation, struct fault *fault, int pass, int nth)
{
	struct fault none = { 0 };
	struct go first = { .fault = fault }, second = { .fault = &none };
	struct resources before, after;
	char leaks[256];

	*fault = (struct fault){ .nth = nth, .pass = pass };
	take_stock(&before);
	operation->run(&first);
	check_message(&first);
	take_stock(&after);
	tell_leaks(&before, &after, leaks, sizeof(leaks));
	strncat(first.wrong, leaks, sizeof(first.wrong) - strlen(first.wrong) - 1);
	operation->run(&second);
	if (second.status < 0 || second.wrong[0] != '\0')
		wrong(&first, "then-%d-%s", second.status, second.wrong);
	take_stock(&after);
	if (after.pages > before.pages)
		wrong(&first, "leaves-%d-pages", after.pages - before.pages);
	print_line(&first, nth);
	return fault->happened != 0;
}

/* Like go_twice(), but in a process that has not used the library before. */
static int go_twice_afresh(const struct operation *operation, struct fault *fault, int pass, int nth)
{
	int status = -1;
	pid_t child = fork();

	if (child == 0) {
		alarm(LIMIT_SECONDS);
		exit(go_twice(operation, fault, pass, nth) ? 0 : 3);
	}
	waitpid(child, &status, 0);
	if (WIFSIGNALED(status))
		printf("the program was ended by signal %d in %s\n", WTERMSIG(status), fault->call);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void loop(const struct operation *operation, int pass)
{
	int afresh = operation->run == load, nth = 1;
	struct fault *fault = mmap(NULL, sizeof(*fault), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	/* Runs the operation once before the failures: memory and descriptors that its first run
	   allocates and keeps are no leak. */
	if (!afresh)
		operation->run(&(struct go){ .fault = &(struct fault){ 0 } });
	do
		alarm(LIMIT_SECONDS);
	while (afresh ? go_twice_afresh(operation, fault, pass, nth++) : go_twice(operation, fault, pass, nth++));
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc != 5 && argc != 6) {
		puts("usage: operations OPERATION PASS DEVICE SENDER [GROUP]");
		return 2;
	}
	device = argv[3];
	open_sender(argv[4]);
	if (argc > 5)
		group = atoi(argv[5]);
	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
		if (strcmp(argv[1], operations[i].name) == 0) {
			loop(&operations[i], pass_of(argv[2]));
			puts("finished");
			return 0;
		}
	}
	printf("no operation %s\n", argv[1]);
	return 2;
}
