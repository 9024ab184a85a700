//! The floor: every system call, ioctl and netlink request that fanpcap makes, the uapi structs behind
//! them, and the loader of the system's libpcap. Safe functions outside, `unsafe` inside; no policy.

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "fanpcap is for 64-bit machines: the layouts of libpcap's structs are not known for others"
);

pub mod bpf;
pub mod elf;
pub mod environment;
mod errno;
pub mod clock;
pub mod events;
pub mod file_lock;
pub mod inotify;
pub mod interface;
pub mod ldcache;
pub mod library;
mod netlink;
pub mod diag;
pub mod link;
pub mod netns;
pub mod packet;
pub mod inject;
pub mod child;
pub mod optmem;
pub mod pcap;
pub mod process;
pub mod directory;
pub mod ring;
pub mod route;
pub mod shared;
pub mod signal;
pub mod lock;
pub mod wait;
pub mod pidfd;
pub mod stop;
