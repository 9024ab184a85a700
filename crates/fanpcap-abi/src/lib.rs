//! The C ABI: libpcap.so.0.8, drop-in for the system's, with `pcap/fanout.h` on top.
//!
//! Every handle that an application gets is the system library's own. Most functions jump straight
//! to that library (`system`). What concerns fan-out is kept beside the handle (`handles`), and is
//! looked up on calls that are rare: create, activate, statistics, close. A handle that our reader
//! reads has a function of ours in its head (`head`, `dispatch`). Callbacks may longjmp or throw.
//! No policy is here: that is the crate `fanpcap`, which sees a handle as `life` shows it.

pub mod data;
mod errbuf;
pub mod system;
mod pcap_handle;
mod message;
mod head;
mod installed;
mod handles;
mod dispatch;
mod take_over;
mod life;
pub mod setters;
pub mod stats;
pub mod activate;
pub mod fanout;
pub mod open;
pub mod read;
