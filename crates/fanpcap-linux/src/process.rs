//! Facts about the calling process and its clock.

pub mod signal;
pub mod lock;
pub mod environment;
pub mod netns;
pub mod child;
pub mod pidfd;

use std::fs;
use std::os::unix::fs::MetadataExt;

/// Whether the process runs with privileges that its user does not have (setuid, file capabilities):
/// `AT_SECURE`, getauxval(3). Such a process must not trust its environment.
pub fn is_secure() -> bool {
    // SAFETY: getauxval reads the auxiliary vector and has no preconditions.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The program's name as the kernel keeps it, at most 15 bytes (proc(5), `comm`).
pub fn name() -> String {
    let comm = fs::read("/proc/self/comm").unwrap_or_default();
    String::from_utf8_lossy(comm.trim_ascii_end()).into_owned()
}

/// What tells the program from others, whatever it calls itself: device and inode of its file. Zeros
/// where there is no /proc.
pub fn executable() -> (u64, u64) {
    fs::metadata("/proc/self/exe").map_or((0, 0), |file| (file.dev(), file.ino()))
}

/// The effective user (geteuid(2)); 0 is root.
pub fn effective_user() -> u32 {
    // SAFETY: no preconditions; it always succeeds.
    unsafe { libc::geteuid() }
}

/// Nanoseconds of `CLOCK_MONOTONIC`, which all processes of a machine share.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// The same as of the kernel's last tick, some milliseconds ago: a memory access instead of a look at the
/// hardware.
pub fn coarse_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC_COARSE)
}

/// Nanoseconds of CPU time that the calling thread has had (`CLOCK_THREAD_CPUTIME_ID`).
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a live timespec; these clocks always exist.
    let _ = unsafe { libc::clock_gettime(clock, &raw mut now) };
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
