/* The selectable descriptor: poll, select and epoll report it as readable only when there are packets. */
#include <sys/epoll.h>
#include <sys/select.h>
#include "../wire.h"

static void ask(pcap_t *p, int epoll, const char *when)
{
	int fd = pcap_get_selectable_fd(p);
	struct epoll_event event = { 0 };
	fd_set set;
	FD_ZERO(&set);
	FD_SET(fd, &set);
	printf("  %s: poll %s", when, yes(readable(p, 0)));
	printf(", select %d", select(fd + 1, &set, NULL, NULL, &(struct timeval){ 0 }));
	printf(", epoll %d\n", epoll_wait(epoll, &event, 1, 0));
}

int main(void)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	int port = port_of(near);
	for (int version = 2; version <= 3; version++) {
		pcap_t *p = created(far, version);
		printf("version %d: created %d %d\n", version, pcap_get_selectable_fd(p), pcap_fileno(p));
		activated(p);
		pcap_setnonblock(p, 1, errbuf);
		printf("  same as fileno %s, required timeout %s\n",
		       yes(pcap_get_selectable_fd(p) == pcap_fileno(p)),
		       yes(pcap_get_required_select_timeout(p) != NULL));
		int epoll = epoll_create1(0);
		struct epoll_event event = { .events = EPOLLIN };
		epoll_ctl(epoll, EPOLL_CTL_ADD, pcap_get_selectable_fd(p), &event);
		ask(p, epoll, "empty");
		send_numbered(port, 0, 12);
		settle(p, 12);
		ask(p, epoll, "12 there");
		printf("  dispatch 5: %d\n", pcap_dispatch(p, 5, count_packet, (u_char *)&(unsigned){ 0 }));
		ask(p, epoll, "7 there");
		printf("  dispatch -1: %d\n", pcap_dispatch(p, -1, count_packet, (u_char *)&(unsigned){ 0 }));
		ask(p, epoll, "drained");
		send_numbered(port, 20, 1);
		settle(p, 13);
		ask(p, epoll, "1 there");
		close(epoll);
		pcap_close(p);
	}
	return 0;
}
