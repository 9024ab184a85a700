/* Frames that a program sends at both ends of the wire come in the order in which it sends them. */
#include <sys/syscall.h>

/* Keeps the program on its present CPU. The kernel hands a frame to the wire's other end on the CPU
   that sent it, perhaps late. A program that goes to another CPU could send the next frame first. */
static inline void stay_on_cpu(void)
{
	unsigned long mask[128 / sizeof(long)] = { 0 };
	unsigned cpu = 0, bits = 8 * sizeof(long);
	syscall(SYS_getcpu, &cpu, NULL, NULL);
	mask[cpu / bits] = 1UL << cpu % bits;
	syscall(SYS_sched_setaffinity, 0, sizeof mask, mask);
}
