//! Devices of DPDK. The functions of DPDK that take packets are inline in its headers, and nothing
//! else of fanpcap may need DPDK's libraries. So a plugin in C (`plugin/fanpcap-dpdk.c`, a package
//! of its own) calls DPDK. This crate loads the plugin and offers safe Rust.
//!
//! A [`Plugin`] is loaded once. [`Plugin::begin`] starts DPDK's environment (EAL), which a process
//! can do only once. [`Eal::open`] opens a device, with a [`Queue`] for each receive queue, and a
//! [`Sender`].

mod abi;
mod name;
mod system;
mod plugin;
mod place;
mod eal;
mod open_error;
mod port;
mod stamps;

pub use abi::{BURST, VERSION};
pub use eal::{BeginError, Eal, EalOptions};
pub use name::{Bus, DeviceName, NameError, arguments_for};
pub use open_error::OpenError;
pub use plugin::{LoadError, Plugin};
pub use port::{Facts, Lent, Opened, PortCounts, PortOptions, PortState, Queue, Sender};
pub use stamps::DeviceClock;
pub use system::{Bound, PciError, check_pci, free_huge_bytes, huge_pages_for};
