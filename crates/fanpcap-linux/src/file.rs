//! Files: directories held by descriptor, trusted ones, locks, mapped counters, memory files,
//! privileged executables, inotify, sysfs, BPF file systems, and free space.

pub mod directory;
pub mod trusted;
pub mod shared;
pub mod lock;
pub mod inotify;
pub mod sealed;
pub mod sysfs;
pub mod privileged;
pub mod bpf_fs;
pub mod space;
