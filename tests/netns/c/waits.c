/* A program that waits for packets by its own means. Usage: waits DEVICE FILE HOW [unread |
   asked]. HOW names the call that returns the descriptor, and the way to wait on the descriptor:
   fileno-poll, fileno-select, fileno-epoll, fileno-edge, fd-poll, fd-epoll. With `fd-timer`, the
   program reads by a timer and only asks for the descriptor. With `blind`, it reads by a timer
   and does not ask for the descriptor. With `unread`, the program first opens another handle,
   which it never reads. With `asked`, it opens such a handle too, and asks it for its
   descriptor. Prints "ready", and writes each packet to FILE until it is interrupted. */
#include "scene.h"
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>

enum { BLIND_MS = 100 };

static volatile sig_atomic_t stopped;
static pcap_dumper_t *file;

static void stop(int signal)
{
	(void)signal;
	stopped = 1;
}

/* Opens a handle whose ring is smaller than by default, because the kernel needs less time to
   clear it. */
static pcap_t *active(const char *device)
{
	pcap_t *p = created(device);

	pcap_set_buffer_size(p, 8 << 20);
	if (pcap_activate(p) < 0)
		fail("pcap_activate", pcap_geterr(p));
	return p;
}

static void keep(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	pcap_dump(user, header, bytes);
	pcap_dump_flush(file);
}

static int watched(int fd, unsigned events)
{
	struct epoll_event event = { .events = events };
	int epoll = epoll_create1(0);

	if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
		fail("epoll", "refused");
	return epoll;
}

/* Waits on the descriptor in the way HOW. Returns false if there is nothing to read. */
static int woken(const char *how, int fd, int epoll)
{
	struct pollfd polled = { .fd = fd, .events = POLLIN };
	struct epoll_event event;
	fd_set set;

	if (strcmp(how, "select") == 0) {
		FD_ZERO(&set);
		FD_SET(fd, &set);
		return select(fd + 1, &set, NULL, NULL, NULL) > 0;
	}
	if (epoll >= 0)
		return epoll_wait(epoll, &event, 1, -1) > 0;
	if (strcmp(how, "poll") == 0)
		return poll(&polled, 1, -1) > 0;
	usleep(BLIND_MS * 1000);
	return 1;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = stop };
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	int fd = -1, epoll = -1, is_edge, got;
	const char *how;
	pcap_t *p;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 4)
		fail("usage", "waits DEVICE FILE HOW [unread | asked]");
	sigaction(SIGINT, &action, NULL);
	how = strchr(argv[3], '-') != NULL ? strchr(argv[3], '-') + 1 : argv[3];
	is_edge = strcmp(how, "edge") == 0;
	p = active(argv[1]);
	if (argc > 4) {
		if (strcmp(argv[4], "asked") == 0)
			pcap_get_selectable_fd(p);
		p = active(argv[1]);
	}
	if (strncmp(argv[3], "fileno", 6) == 0)
		fd = pcap_fileno(p);
	else if (strcmp(how, "blind") != 0)
		fd = pcap_get_selectable_fd(p);
	if (is_edge || strcmp(how, "timer") == 0 || strcmp(how, "blind") == 0)
		pcap_setnonblock(p, 1, errbuf);
	if (is_edge || strcmp(how, "epoll") == 0)
		epoll = watched(fd, EPOLLIN | (is_edge ? (unsigned)EPOLLET : 0));
	file = pcap_dump_open(p, argv[2]);
	if (file == NULL)
		fail("pcap_dump_open", pcap_geterr(p));
	pcap_dump_flush(file);
	puts("ready");
	while (!stopped) {
		if (!woken(how, fd, epoll))
			continue;
		do {
			got = pcap_dispatch(p, -1, keep, (u_char *)file);
		} while (is_edge && got > 0);
		if (got == PCAP_ERROR)
			fail("pcap_dispatch", pcap_geterr(p));
	}
	pcap_dump_close(file);
	pcap_close(p);
	return 0;
}
