//! All system calls, ioctls and netlink requests of fanpcap, with the kernel's structs. Each module
//! is for one kernel subsystem. The functions are safe to call, and contain no policy. `object` is
//! for the dynamic loader, and loading an object is unsafe.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("fanpcap is for 64-bit machines");

mod errno;
mod bytes;
mod option;
mod mapping;
pub mod object;
pub mod unacknowledged;
pub mod backlog;
pub mod wait;
pub mod memory;
pub mod process;
pub mod bpf;
pub mod interface;
pub mod ethtool;
pub mod netlink;
pub mod packet;
pub mod xsk;
pub mod netmap;
pub mod file;
pub mod unix;
