//! Reads the kernel's ring layouts and the packets in them: TPACKET_V3's blocks, TPACKET_V2's
//! frames (linux/if_packet.h, net/packet/af_packet.c), and the rings of AF_XDP sockets
//! (net/xdp/xsk_queue.h) and of netmap (net/netmap.h). Also reads and writes pools, and emits the
//! code with which BPF programs write pools. Makes no system calls.
//!
//! The contents of the memory are not trusted: an index or length that leads out of the memory is
//! an error, [`Corrupt`].

mod frame;
mod shared;
mod position;
mod prefetch;
mod layout;
mod blocks;
mod frames;
mod wall;
pub mod pool;
mod calls;
mod ring;
mod remains;
mod xsk;
mod netmap;

pub use blocks::{Blocks, Closed};
pub use calls::{CallRing, Called, Calls};
pub use frame::{Corrupt, Frame, LentFrame, LinkInfo, Stamp, Vlan};
pub use frames::Frames;
pub use layout::Layout;
pub use netmap::NetmapRing;
pub use pool::{Drained, Pool, PoolClocks, PoolMemory, PoolWords};
pub use position::{Mark, Position};
pub use prefetch::prefetch_packet;
pub use remains::Remains;
pub use ring::Ring;
pub use shared::{Handover, OneReader, Renewable};
pub use wall::{OffsetClock, OffsetReading};
pub use xsk::Chunks;
