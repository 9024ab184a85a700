//! Takes packets from devices in user space, spreads them over groups of members by steering
//! programs, and writes them into the members' pools.
//!
//! A [`Source`] lends the packets of one receive queue, up to [`BURST`] at a time. A [`FanOut`] has
//! the groups of that queue: it decides which members get each packet, and copies the packet into
//! their pools ([`fanpcap_ring::pool::LaneWriter`]). One thread runs both. The caller passes the
//! time; a [`FanOut`] itself reads only the thread's CPU time.
//!
//! A [`queue::Queue`] is that thread. A [`device::Device`] has the device's queues, groups and
//! members. It changes a group by the steps of all steered groups ([`fanpcap_group::served`]): it
//! writes the group's table ([`fanpcap_buckets::layout`]), which the queues' threads read for each
//! packet, and has them add and remove pools between two bursts. A [`server::Server`] has the
//! members' connections. An [`access::Access`] says which users may connect.
#![forbid(unsafe_code)]

mod burst;
mod source;
mod table;
mod flows;
mod filter;
mod group;
mod shares;
mod pace;
mod fan_out;
mod accounts;
mod limits;
pub mod access;
mod shared;
mod device_socket;
pub mod packet;
pub mod afxdp;
pub mod netmap;
pub mod zc;
pub mod dpdk;
mod sender;
pub mod kind;
mod naps;
mod sleep;
pub mod queue;
pub mod device;
pub mod server;

pub use accounts::{Account, Accounts};
pub use burst::{BURST, Burst, Packet};
pub use fan_out::{FanOut, GROUPS_MAX, MemberSlot};
pub use filter::{DeviceFilter, Filter};
pub use group::{Dismissed, GroupCounts, NewGroup, ReadyGroup, Wants};
pub use limits::{Limit, Limits, Policy};
pub use sender::{Sender, SentCounts};
pub use shared::{ClosedThere, DroppedThere, Shared};
pub use source::{Source, SourceCounts, SourceError};
