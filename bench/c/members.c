/* members DEVICE FILE: a member of a group that records each packet in a mapped file. When the
   member is killed, the records of its packets stay in the file. The member prints how long opening
   took, and "ready" before it reads. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pcap/pcap.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

/* A frame's number is behind the headers of Ethernet, IPv4 and UDP. */
enum { NUMBER = 14 + 20 + 8, MOST = 1 << 21 };

struct records {
    unsigned long count;
    struct {
        unsigned long arrived_us; /* since 1970 */
        unsigned number, waited_us;
    } packets[MOST];
};

static pcap_t *pcap;
static struct records *records;
static volatile sig_atomic_t stopped;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "members: %s: %s\n", what, why);
    exit(1);
}

static void stop(int signal)
{
    (void)signal;
    stopped = 1;
    pcap_breakloop(pcap);
}

static unsigned long now_us(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000UL + t.tv_nsec / 1000;
}

static void record(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
    unsigned long arrived = header->ts.tv_sec * 1000000UL + header->ts.tv_usec, now;
    unsigned long count = records->count;

    (void)user;
    if (header->caplen < NUMBER + 4 || count == MOST)
        return;
    data += NUMBER;
    /* A record is valid once `arrived_us` is set, even if the member is then killed. */
    records->packets[count].number =
        (unsigned)data[0] << 24 | data[1] << 16 | data[2] << 8 | data[3];
    __atomic_store_n(&records->packets[count].arrived_us, arrived, __ATOMIC_RELEASE);
    now = now_us(CLOCK_REALTIME);
    records->packets[count].waited_us = now > arrived ? now - arrived : 0;
    __atomic_store_n(&records->count, count + 1, __ATOMIC_RELEASE);
}

int main(int argc, char **argv)
{
    char error[PCAP_ERRBUF_SIZE];
    unsigned long begin;
    int fd;

    setvbuf(stdout, NULL, _IOLBF, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc != 3)
        fail("usage", "members DEVICE FILE");
    fd = open(argv[2], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *records) != 0)
        fail("open", argv[2]);
    records = mmap(NULL, sizeof *records, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (records == MAP_FAILED)
        fail("mmap", argv[2]);
    begin = now_us(CLOCK_MONOTONIC);
    if (!(pcap = pcap_create(argv[1], error)))
        fail("pcap_create", error);
    pcap_set_snaplen(pcap, 64);
    pcap_set_timeout(pcap, 50);
    pcap_set_buffer_size(pcap, 32 << 20);
    if (pcap_activate(pcap) < 0)
        fail("pcap_activate", pcap_geterr(pcap));
    signal(SIGTERM, stop);
    printf("opened %lu us\nready\n", now_us(CLOCK_MONOTONIC) - begin);
    while (!stopped)
        if (pcap_dispatch(pcap, -1, record, NULL) == PCAP_ERROR)
            fail("pcap_dispatch", pcap_geterr(pcap));
    pcap_close(pcap);
    return 0;
}
