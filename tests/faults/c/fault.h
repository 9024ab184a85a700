/* How a program asks its tracer for a failure: a prctl() of a number that the kernel does not know. */
#ifndef fault_h
#define fault_h

#include <sys/prctl.h>

enum { FAULT_ARM = 0x66616e70, FAULT_DISARM = 0x66616e71 };

/* How calls fail: for want of memory or a descriptor; for want of permission; as if by a signal (only
   calls that signals interrupt are counted then); for want of a descriptor from then on (only calls that
   make one are counted). */
enum pass { RESOURCES, DENIED, INTERRUPTED, EXHAUSTED, PASSES };

/* The failure of the `nth` system call that the calling thread makes from here on; none for 0. The
   tracer fills in the rest when it happens. */
struct fault {
	long nth;
	long pass;
	long happened;
	long error;
	/* The call as a reader knows it: name, option, path. */
	char call[160];
};

static inline void arm(struct fault *fault)
{
	prctl(FAULT_ARM, fault, 0, 0, 0);
}

static inline void disarm(void)
{
	prctl(FAULT_DISARM, 0, 0, 0, 0);
}

#endif
