//! XDP as an engine. A BPF program at a device's receive path steers, stamps and copies each packet
//! into the pool of a member.
//!
//! Each group on a device has one BPF program for received packets ([`GroupProgram`]). The data
//! that differ between members are in maps: pools, filters, and a row for each slot and lane. So
//! only maps change when a member joins or leaves. The groups of a device share one [`Device`].
#![forbid(unsafe_code)]

mod layout;
mod rows;
mod pool;
mod capture;
#[cfg(test)]
mod test_group;
mod unavailable;
mod root;
mod load;
mod program;
pub mod selection;
mod own;
mod device;
mod registry;
mod port;
mod count_maps;
mod on_device;
mod engine;

pub use capture::Capture;
pub use device::{Device, ServedDevice, Untaken, pool_shape, takes_tags};
pub use engine::Xdp;
pub use layout::{GROUP_SLOTS, SLOTS};
pub use load::{Compile, ProgramError};
pub use pool::{MemberPool, PoolArray};
pub use port::CLOCKS;
pub use program::{DeviceMaps, GroupProgram, SlotFilter};
pub use registry::DeviceRegistry;
pub use rows::SlotCounts;
pub use selection::{Selection, TURN};
pub use unavailable::{Unavailable, crowded, no_memory};
