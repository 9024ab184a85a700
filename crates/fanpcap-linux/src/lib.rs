//! The floor: every system call, ioctl and netlink request that fanpcap makes, the uapi structs behind
//! them, and the loader of the system's libpcap. Safe functions outside, `unsafe` inside; no policy.

pub mod bpf;
pub mod diag;
pub mod elf;
mod errno;
pub mod file;
pub mod inject;
pub mod interface;
pub mod ldcache;
pub mod library;
pub mod netns;
pub mod packet;
pub mod process;
pub mod ring;
pub mod signal;
pub mod wait;
