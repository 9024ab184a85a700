//! The C ABI: libpcap.so.0.8, drop-in for the system's, with `pcap/fanout.h` on top.
//!
//! Every handle that a program gets is the system library's own. Most functions jump straight to that
//! library (`system`); what concerns fan-out is kept beside the handle (`handles`) and looked up
//! on calls that are rare: create, activate, statistics, close. Handles that we read have a function of
//! ours in their head (`head`, `take_over`, `read`). Callbacks may longjmp or throw. No policy here: that is the crate
//! `fanpcap`.

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
