/* Threads that compile at the same time, and set filters on their own handles. */
#include <pthread.h>
#include "../wire.h"

enum { THREADS = 4, ROUNDS = 150 };

static void *compile(void *number)
{
	char expression[64];
	unsigned long sum = 0;
	pcap_t *p = opened("lo", 2 + *(int *)number % 2);
	for (int i = 0; i < ROUNDS; i++) {
		struct bpf_program program;
		snprintf(expression, sizeof expression, "udp port %d and vlan %d", *(int *)number * 1000 + i, i % 100);
		if (pcap_compile(p, &program, expression, 1, 0) != 0) {
			printf("%s\n", pcap_geterr(p));
			continue;
		}
		for (u_int at = 0; at < program.bf_len; at++)
			sum = sum * 31 + program.bf_insns[at].k;
		if (i % 50 == 0 && pcap_setfilter(p, &program) != 0)
			printf("%s\n", pcap_geterr(p));
		pcap_freecode(&program);
	}
	pcap_close(p);
	return (void *)sum;
}

int main(void)
{
	pthread_t threads[THREADS];
	int numbers[THREADS];
	for (int i = 0; i < THREADS; i++) {
		numbers[i] = i;
		pthread_create(&threads[i], NULL, compile, &numbers[i]);
	}
	for (int i = 0; i < THREADS; i++) {
		void *sum = NULL;
		pthread_join(threads[i], &sum);
		printf("%d: %lx\n", i, (unsigned long)sum);
	}
	return 0;
}
