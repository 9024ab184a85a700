//! Processes: facts about the calling process, per-thread attributes, and other processes.

pub mod signal;
pub mod lock;
pub mod environment;
pub mod netns;
pub mod cpu;
pub mod stat;
pub mod child;
pub mod pidfd;
pub mod memory;

use std::fs;
use std::os::unix::fs::MetadataExt;

/// Whether the process runs with privileges that its user does not have (setuid, file
/// capabilities): `AT_SECURE`, getauxval(3). Such a process must not trust its environment.
pub fn is_secure() -> bool {
    // SAFETY: getauxval reads the auxiliary vector and has no preconditions.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The process's name as the kernel keeps it, at most 15 bytes (proc(5), `comm`).
pub fn name() -> String {
    let comm = fs::read("/proc/self/comm").unwrap_or_default();
    String::from_utf8_lossy(comm.trim_ascii_end()).into_owned()
}

/// Device and inode of the process's executable file, independent of the process's name. Zeros
/// where there is no /proc.
pub fn executable() -> (u64, u64) {
    fs::metadata("/proc/self/exe").map_or((0, 0), |file| (file.dev(), file.ino()))
}

/// The effective user (geteuid(2)); 0 is root.
pub fn effective_user() -> u32 {
    // SAFETY: no preconditions; it always succeeds.
    unsafe { libc::geteuid() }
}
