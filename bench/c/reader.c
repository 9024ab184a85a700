/* Reads packets by the libpcap that the loader finds, and prints the cost as one line of JSON. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pcap/pcap.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Offset of a probe's mark. The time of sending (CLOCK_MONOTONIC) follows the mark. */
#define MARK_AT 42
#define MARK "FANPROBE"
#define MOST 65536
/* DiCAP sends this many bytes of a packet, from the network header on, and this many packets in a
   datagram at most. */
#define HEADER 52
#define HEADERS 28

struct settings {
    const char *device, *filter;
    int snaplen, immediate, timeout, latency, opens, version, buffer, work, plain, group;
    int exact, polls, skips, headers;
    struct sockaddr_in to;
};

static struct settings set = {.snaplen = 262144, .timeout = 100};
static pcap_t *pcap;
static volatile sig_atomic_t stopped;
static unsigned long long delivered, bytes, touched;
static long long times[MOST], busy;
static size_t timed;

static long long now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "reader: %s: %s\n", what, why);
    exit(1);
}

static void stop(int signal)
{
    (void)signal;
    stopped = 1;
    if (pcap)
        pcap_breakloop(pcap);
}

/* The time that work() takes beyond `busy`: about one and a half readings of the clock. */
static long long clock_cost(void)
{
    enum { READINGS = 20000 };
    long long start = now(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < READINGS; i++)
        now(CLOCK_THREAD_CPUTIME_ID);
    return (now(CLOCK_THREAD_CPUTIME_ID) - start) / READINGS * 3 / 2;
}

/* Uses `busy` nanoseconds of this thread's own CPU time. Time in which other processes
   run on the core does not count. */
static void work(void)
{
    for (long long due = now(CLOCK_THREAD_CPUTIME_ID) + busy; now(CLOCK_THREAD_CPUTIME_ID) < due;)
        ;
}

/* Reads the link-layer header, as any application would. */
static void count(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
    (void)user;
    delivered++;
    bytes += header->caplen;
    touched += data[0] + data[12];
}

/* Reads no packet, so that all packets stay in the other core's cache. */
static void skip(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
    (void)user, (void)header, (void)data;
    delivered++;
}

static void count_and_work(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
    count(user, header, data);
    work();
}

/* Sends headers to an analyzer, `set.headers` in a datagram. */
static void ship(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
    static u_char datagram[HEADERS * HEADER];
    static int filled, to = -1;
    size_t length = header->caplen > ETHER_HDR_LEN ? header->caplen - ETHER_HDR_LEN : 0;
    count(user, header, data);
    if (to < 0 && (to = socket(AF_INET, SOCK_DGRAM, 0)) < 0)
        fail("socket", strerror(errno));
    memset(datagram + filled * HEADER, 0, HEADER);
    memcpy(datagram + filled * HEADER, data + ETHER_HDR_LEN, length < HEADER ? length : HEADER);
    if (++filled < set.headers)
        return;
    /* If the analyzer has ended, the kernel refuses the datagram. This does not end the reader. */
    if (sendto(to, datagram, filled * HEADER, 0, (struct sockaddr *)&set.to, sizeof set.to) < 0
        && errno != ECONNREFUSED)
        fail("sendto", strerror(errno));
    filled = 0;
}

static void time_probe(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
    long long sent, received = now(CLOCK_MONOTONIC);
    count(user, header, data);
    if (header->caplen < MARK_AT + 16 || memcmp(data + MARK_AT, MARK, 8) != 0 || timed == MOST)
        return;
    memcpy(&sent, data + MARK_AT + 8, sizeof sent);
    times[timed++] = received - sent;
}

static void check(int rc, const char *what)
{
    if (rc < 0)
        fail(what, rc == PCAP_ERROR ? pcap_geterr(pcap) : pcap_statustostr(rc));
}

static void filter(void)
{
    struct bpf_program program;
    check(pcap_compile(pcap, &program, set.filter, 1, PCAP_NETMASK_UNKNOWN), "pcap_compile");
    check(pcap_setfilter(pcap, &program), "pcap_setfilter");
    pcap_freecode(&program);
}

static void open_handle(void)
{
    char error[PCAP_ERRBUF_SIZE];
    if (!(pcap = pcap_create(set.device, error)))
        fail("pcap_create", error);
    check(pcap_set_snaplen(pcap, set.snaplen), "pcap_set_snaplen");
    check(pcap_set_timeout(pcap, set.timeout), "pcap_set_timeout");
    check(pcap_set_immediate_mode(pcap, set.immediate), "pcap_set_immediate_mode");
    if (set.buffer)
        check(pcap_set_buffer_size(pcap, set.buffer), "pcap_set_buffer_size");
    int rc = pcap_activate(pcap);
    check(rc, "pcap_activate");
    if (rc && set.exact)
        fail("pcap_activate warns", rc == PCAP_WARNING ? pcap_geterr(pcap) : pcap_statustostr(rc));
    if (set.filter)
        filter();
}

static int ascending(const void *a, const void *b)
{
    long long x = *(const long long *)a, y = *(const long long *)b;
    return (x > y) - (x < y);
}

static void print_times(const char *name, long long *all, size_t n)
{
    if (!n)
        return;
    qsort(all, n, sizeof *all, ascending);
    printf(",\"%s\":{\"count\":%zu,\"p50\":%lld,\"p99\":%lld,\"max\":%lld}", name, n, all[n / 2],
           all[(n - 1) * 99 / 100], all[n - 1]);
}

/* The file of the libpcap that this process has loaded. */
static const char *library(void)
{
    Dl_info info;
    void *entry = dlsym(RTLD_DEFAULT, "pcap_create");
    return entry && dladdr(entry, &info) ? info.dli_fname : "?";
}

static void print_origin(void)
{
    printf("{\"library\":\"%s\",\"version\":\"%s\"", library(), pcap_lib_version());
}

/* Waits for the handle's descriptor, without a time-out, before each read. */
static int poll_and_read(pcap_handler handler)
{
    char error[PCAP_ERRBUF_SIZE];
    struct pollfd wait = {.fd = pcap_get_selectable_fd(pcap), .events = POLLIN};
    sigset_t term, before;
    int rc = 0;
    if (wait.fd < 0 || pcap_setnonblock(pcap, 1, error) < 0)
        fail("polling", wait.fd < 0 ? "no selectable descriptor" : error);
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    /* The signal is blocked except during the wait, so that a signal always ends the wait. */
    sigprocmask(SIG_BLOCK, &term, &before);
    while (!stopped && rc >= 0) {
        if (ppoll(&wait, 1, NULL, &before) < 0 && errno != EINTR)
            fail("ppoll", strerror(errno));
        rc = pcap_dispatch(pcap, -1, handler, NULL);
    }
    return rc;
}

/* Reads until SIGTERM, then reads the packets left in the ring. */
static void capture(void)
{
    pcap_handler handler = set.latency ? time_probe : set.work ? count_and_work
                         : set.skips   ? skip       : set.headers ? ship : count;
    char error[PCAP_ERRBUF_SIZE];
    struct pcap_stat stats;
    int rc = 0;
    open_handle();
    if (set.work)
        busy = set.work - clock_cost();
    puts("ready");
    long long start = now(CLOCK_THREAD_CPUTIME_ID);
    if (set.polls)
        rc = poll_and_read(handler);
    while (!stopped && rc >= 0)
        rc = pcap_loop(pcap, -1, handler, NULL);
    if (rc != PCAP_ERROR_BREAK)
        check(rc, "reading");
    if (pcap_setnonblock(pcap, 1, error) < 0)
        fail("pcap_setnonblock", error);
    while ((rc = pcap_dispatch(pcap, -1, handler, NULL)) > 0 || rc == PCAP_ERROR_BREAK)
        ;
    check(rc, "pcap_dispatch");
    long long cpu = now(CLOCK_THREAD_CPUTIME_ID) - start;
    check(pcap_stats(pcap, &stats), "pcap_stats");
    print_origin();
    printf(",\"delivered\":%llu,\"bytes\":%llu,\"touched\":%llu,\"received\":%u,\"dropped\":%u"
           ",\"cpu_ns\":%lld", delivered, bytes, touched, stats.ps_recv, stats.ps_drop, cpu);
    print_times("latency_ns", times, timed);
    puts("}");
    pcap_close(pcap);
}

static int plain_socket(void)
{
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
    int packet = socket(AF_PACKET, SOCK_RAW, 0), fanout = set.group | PACKET_FANOUT_HASH << 16;
    struct timeval timeout = {.tv_usec = set.timeout * 1000};
    if (packet < 0)
        fail("socket", strerror(errno));
    if (!(address.sll_ifindex = if_nametoindex(set.device)))
        fail("if_nametoindex", set.device);
    if (setsockopt(packet, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) < 0)
        fail("SO_RCVTIMEO", strerror(errno));
    if (bind(packet, (struct sockaddr *)&address, sizeof address) < 0)
        fail("bind", strerror(errno));
    if (set.group && setsockopt(packet, SOL_PACKET, PACKET_FANOUT, &fanout, sizeof fanout) < 0)
        fail("PACKET_FANOUT", strerror(errno));
    return packet;
}

/* Reads without libpcap and without a ring: one recvfrom for each packet. */
static void receive(void)
{
    static u_char data[MOST];
    struct tpacket_stats stats;
    socklen_t length = sizeof stats;
    int packet = plain_socket();
    puts("ready");
    long long start = now(CLOCK_THREAD_CPUTIME_ID);
    for (;;) {
        ssize_t n = recvfrom(packet, data, sizeof data, stopped ? MSG_DONTWAIT : 0, NULL, NULL);
        struct pcap_pkthdr header = {.caplen = n > 0 ? n : 0};
        if (n >= 0)
            count(NULL, &header, data);
        else if (errno != EAGAIN && errno != EINTR)
            fail("recvfrom", strerror(errno));
        else if (stopped)
            break;
    }
    long long cpu = now(CLOCK_THREAD_CPUTIME_ID) - start;
    if (getsockopt(packet, SOL_PACKET, PACKET_STATISTICS, &stats, &length) < 0)
        fail("PACKET_STATISTICS", strerror(errno));
    print_origin();
    printf(",\"delivered\":%llu,\"bytes\":%llu,\"touched\":%llu,\"received\":%u,\"dropped\":%u"
           ",\"cpu_ns\":%lld}\n", delivered, bytes, touched, stats.tp_packets, stats.tp_drops, cpu);
}

/* Repeatedly opens a handle, reads the first packet and closes the handle. */
static void open_often(void)
{
    static long long opened[MOST], closed[MOST];
    char error[PCAP_ERRBUF_SIZE];
    puts("ready");
    for (timed = 0; timed < (size_t)set.opens && !stopped; timed++) {
        long long start = now(CLOCK_MONOTONIC), end;
        *error = 0;
        if (!(pcap = pcap_open_live(set.device, set.snaplen, 0, set.timeout, error)))
            fail("pcap_open_live", error);
        if (*error && set.exact)
            fail("pcap_open_live warns", error);
        if (set.filter)
            filter();
        opened[timed] = now(CLOCK_MONOTONIC) - start;
        for (unsigned long long before = delivered; delivered == before && !stopped;)
            check(pcap_dispatch(pcap, 1, count, NULL), "pcap_dispatch");
        end = now(CLOCK_MONOTONIC);
        times[timed] = end - start;
        /* While the handle is closed, the signal handler must not use it. */
        pcap_t *done = pcap;
        pcap = NULL;
        pcap_close(done);
        closed[timed] = now(CLOCK_MONOTONIC) - end;
    }
    print_origin();
    print_times("open_ns", opened, timed);
    print_times("first_ns", times, timed);
    print_times("close_ns", closed, timed);
    puts("}");
}

/* Parses ADDRESS:PORT, with an IPv4 address. */
static void address(char *text)
{
    char *port = strchr(text, ':');
    if (!port)
        fail("no port", text);
    *port = 0;
    set.to.sin_family = AF_INET;
    set.to.sin_port = htons(atoi(port + 1));
    if (!inet_aton(text, &set.to.sin_addr))
        fail("no address", text);
}

static void arguments(int argc, char **argv)
{
    for (int option; (option = getopt(argc, argv, "i:s:t:f:o:b:w:g:H:A:EILPRSV")) != -1;)
        switch (option) {
        case 'i': set.device = optarg; break;
        case 's': set.snaplen = atoi(optarg); break;
        case 't': set.timeout = atoi(optarg); break;
        case 'f': set.filter = optarg; break;
        case 'o': set.opens = atoi(optarg); break;
        case 'b': set.buffer = atoi(optarg); break;
        case 'w': set.work = atoi(optarg); break;
        case 'g': set.group = atoi(optarg); break;
        case 'H': set.headers = atoi(optarg); break;
        case 'A': address(optarg); break;
        case 'R': set.plain = 1; break;
        case 'E': set.exact = 1; break;
        case 'P': set.polls = 1; break;
        case 'S': set.skips = 1; break;
        case 'I': set.immediate = 1; break;
        case 'L': set.latency = 1; break;
        case 'V': set.version = 1; break;
        default: exit(2);
        }
    if (!set.device || set.opens < 0 || set.opens > MOST || set.headers < 0 || set.headers > HEADERS)
        fail("usage", "reader -i DEVICE [-s SNAPLEN] [-t MS] [-f FILTER] [-o OPENS] [-b BYTES]"
             " [-w NANOSECONDS] [-g GROUP] [-H HEADERS -A ADDRESS:PORT] [-EILPRSV]");
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = stop};
    /* The reader ends when the bench ends, even if the bench is killed. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    arguments(argc, argv);
    sigaction(SIGTERM, &action, NULL);
    if (set.version) {
        puts("ready");
        print_origin();
        puts("}");
    } else if (set.plain)
        receive();
    else if (set.opens)
        open_often();
    else
        capture();
    return 0;
}
