//! Files: directories held by descriptor, locks, mapped counters, privileged executables, notices
//! of created and removed files, and BPF file systems.

pub mod directory;
pub mod shared;
pub mod lock;
pub mod inotify;
pub mod sealed;
pub mod sysfs;
pub mod privileged;
pub mod bpf_fs;
