/* How a program asks its tracer for a failure: by a prctl() with a number that the kernel does not
   have. */
#ifndef fault_h
#define fault_h

#include <sys/prctl.h>

enum { FAULT_ARM = 0x66616e70, FAULT_DISARM = 0x66616e71 };

/* How calls fail. RESOURCES: for lack of memory or descriptors. DENIED: for lack of permission.
   INTERRUPTED: as if a signal interrupted them; only calls that signals interrupt are counted.
   EXHAUSTED: for lack of descriptors, from the nth call on; only calls that make a descriptor are
   counted. */
enum pass { RESOURCES, DENIED, INTERRUPTED, EXHAUSTED, PASSES };

/* The request that the `nth` system call of the calling thread from now on fails; 0 for no failure.
   The tracer fills in the other fields when the call fails. */
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
