//! The floor: every system call, ioctl and netlink request that fanpcap makes, the uapi structs behind
//! them, and the loader of the system's libpcap. Safe functions outside, `unsafe` inside; no policy.

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "fanpcap is for 64-bit machines: the layouts of libpcap's structs are not known for others"
);

pub mod bpf;
pub mod child;
pub mod clock;
pub mod diag;
pub mod directory;
pub mod elf;
pub mod environment;
mod errno;
pub mod events;
pub mod file_lock;
pub mod inject;
pub mod inotify;
pub mod interface;
pub mod ldcache;
pub mod library;
pub mod link;
pub mod lock;
mod netlink;
pub mod netns;
pub mod optmem;
pub mod packet;
pub mod pcap;
pub mod pidfd;
pub mod process;
pub mod ring;
pub mod route;
pub mod shared;
pub mod signal;
pub mod stop;
pub mod wait;
