/* A program asks its tracer for a failure by a prctl() with a number that the kernel does not
   have. */
#ifndef fault_h
#define fault_h

#include <sys/prctl.h>

enum { FAULT_ARM = 0x66616e70, FAULT_DISARM = 0x66616e71 };

/* The ways in which calls fail. RESOURCES: for lack of memory or descriptors. DENIED: for lack
   of permission. INTERRUPTED: as if a signal interrupted the call; only calls that signals can
   interrupt are counted. EXHAUSTED: for lack of descriptors, in the nth call and in all later
   calls; only calls that make a descriptor are counted. */
enum pass { RESOURCES, DENIED, INTERRUPTED, EXHAUSTED, PASSES };

/* A request: the `nth` system call that the calling thread makes after this request must fail.
   If `nth` is 0, no call fails. The tracer sets the fields after `pass` when the call fails. */
struct fault {
	long nth;
	long pass;
	long happened;
	long error;
	/* The call in readable form: name, option, path. */
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
