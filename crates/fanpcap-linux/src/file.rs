//! Files: directories held by descriptor, locks, mapped counters, programs' privileges, and notices
//! of files that come and go.

pub mod directory;
pub mod shared;
pub mod lock;
pub mod inotify;
pub mod sealed;
pub mod sysfs;
pub mod privileged;
