/* A preloaded library that imitates a kernel without the feature that WITHOUT names. It makes
   calls of bpf(2) fail as they fail on such a kernel. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

/* Numbers from linux/bpf.h that are missing in older headers. */
enum { RINGBUF = 27, LINK_CREATE = 28, ATTACH_XDP = 37, ATTACH_TCX_EGRESS = 47, HAS_FRAGS = 1 << 5 };

static int error_of(long command, const union bpf_attr *attr, const char *without)
{
	int is_xdp_link = command == LINK_CREATE && attr->link_create.attach_type == ATTACH_XDP;
	int is_tcx_link = command == LINK_CREATE && attr->link_create.attach_type == ATTACH_TCX_EGRESS;
	int is_load = command == BPF_PROG_LOAD;

	if (strcmp(without, "bpf") == 0)
		return ENOSYS;
	if (strcmp(without, "capability") == 0 && is_load)
		return EPERM;
	if (strcmp(without, "ring-buffer") == 0 && command == BPF_MAP_CREATE && attr->map_type == RINGBUF)
		return EINVAL;
	if (strcmp(without, "frags") == 0 && is_load && attr->prog_flags & HAS_FRAGS)
		return EINVAL;
	if (strcmp(without, "link") == 0 && is_xdp_link)
		return EINVAL;
	if (strcmp(without, "native") == 0 && is_xdp_link)
		return EOPNOTSUPP;
	if (strcmp(without, "tcx") == 0 && is_tcx_link)
		return EINVAL;
	return 0;
}

long syscall(long number, ...)
{
	long (*next)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	const char *without = getenv("WITHOUT");
	long words[6];
	va_list list;

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		words[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_bpf && without != NULL) {
		int error = error_of(words[0], (const union bpf_attr *)words[1], without);

		if (error != 0) {
			errno = error;
			return -1;
		}
	}
	return next(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
