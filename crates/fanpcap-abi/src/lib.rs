//! The C ABI: libpcap.so.0.8, a drop-in replacement of the system's, plus `pcap/fanout.h`.
//!
//! Every handle of an application is one of the system's library. Most functions jump straight to
//! that library (`system`). A table beside the handles has the state for fanout (`handles`). Only
//! rare calls look it up: create, activate, statistics, close. A handle that our reader reads has a
//! function of ours in its head (`head`, `dispatch`). Callbacks may longjmp or throw. Policy is in
//! the crate `fanpcap`, which sees a handle through `life`.

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
pub mod socket;
