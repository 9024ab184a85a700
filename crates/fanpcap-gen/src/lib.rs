//! Traffic for tests and measurements. Makes frames from a description or a capture file, and sends
//! them.
//!
//! A [`Pool`] is a list of frames, made by [`Description::pool`] or read by [`Replay`]. A
//! [`Sender`] sends frame `i % pool.len()` as its frame `i`. A [`Plan`] gives the rate and the end.
//! Both ways to send deliver the same frames:
//!
//! * live frames: an eBPF program within the kernel takes the frames from a map and sends them.
//!   This way is several times as fast as any reader, but not possible everywhere;
//! * portable: sendmmsg(2) on a packet socket, bypassing the queueing discipline.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use std::time::Duration;
//! use fanpcap_gen::{Choice, Description, Pace, Plan, Sender, Until};
//!
//! let description = Description { flows: 4096, ..Description::default() };
//! let pool = description.pool()?;
//! let mut sender = Sender::open("veth0", pool, Choice::Auto)?;
//! let plan = Plan {
//!     until: Until::Elapsed(Duration::from_secs(2)),
//!     pace: Pace::Even("100kpps".parse()?),
//! };
//! let sent = sender.send(&plan, &AtomicBool::new(false))?;
//! println!("{} frames, {} ns, {}", sent.frames, sent.nanoseconds, sender.way());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod checksum;
pub mod headers;
mod counting;
mod prefix;
mod program;
mod random;
mod pace;
mod rewrite;
mod route;
mod guard;
mod pool;
mod live;
mod portable;
mod device;
mod record;
mod replay;
mod watch;
mod description;
mod flow;
mod datagram;
mod synthesis;
mod run;
mod sender;

pub use counting::{Counted, Counting, Peer};
pub use description::{Description, Families, Lengths, Transports};
pub use device::Device;
pub use guard::guard;
pub use pace::{Pace, Rate};
pub use pool::{POOL_LIMIT, Pool};
pub use prefix::Prefix;
pub use record::{Record, Records};
pub use replay::{Faults, Limit, Replay};
pub use rewrite::move_addresses;
pub use run::{Plan, Sent, Until};
pub use sender::{Choice, Sender, Way};
