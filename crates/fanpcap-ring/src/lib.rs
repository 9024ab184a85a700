//! Reads the kernel's ring layouts and the packets in them: TPACKET_V3's blocks, TPACKET_V2's
//! frames (linux/if_packet.h, net/packet/af_packet.c), and BPF ring buffers (kernel/bpf/ringbuf.c).
//! Also reads the pools that fanpcap's own BPF programs fill, writes such pools, and reads the
//! rings of AF_XDP sockets (net/xdp/xsk_queue.h). Makes no system calls.
//!
//! The contents of the memory are not trusted: an index or length that leads out of the memory is
//! an error, [`Corrupt`].

mod frame;
mod handover;
mod one_reader;
mod renewable;
mod position;
mod prefetch;
mod layout;
mod blocks;
mod frames;
mod wall;
mod records;
pub mod pool;
mod ring;
mod remains;
mod xsk;

pub use blocks::{Blocks, Closed};
pub use frame::{Corrupt, Frame, LentFrame, LinkInfo, Stamp, Vlan};
pub use frames::Frames;
pub use handover::Handover;
pub use layout::Layout;
pub use one_reader::OneReader;
pub use pool::{Drained, Pool, PoolClocks, PoolMemory, PoolWords};
pub use position::{Mark, Position};
pub use records::{LONGEST, Labelled, Records};
pub use remains::Remains;
pub use renewable::Renewable;
pub use ring::Ring;
pub use wall::OffsetClock;
pub use xsk::Chunks;
