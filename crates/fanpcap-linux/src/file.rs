//! Files: directories held by descriptor, locks, mapped counters, programs' privileges, notices
//! of files that come and go, and BPF file systems.

pub mod directory;
pub mod shared;
pub mod lock;
pub mod inotify;
pub mod sealed;
pub mod sysfs;
pub mod privileged;
pub mod bpf_fs;
