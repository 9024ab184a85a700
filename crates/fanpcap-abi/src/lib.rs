//! The C ABI: libpcap.so.0.8, a drop-in replacement of the system's library, and `pcap/fanout.h`.
//!
//! Every handle of an application is a handle of the system's library. Most functions jump straight
//! to that library (`system`). A separate table holds the fanout state of handles (`handles`). Only
//! rare calls use this table: create, activate, statistics, close. A handle that our reader reads
//! has our function in its head (`head`, `dispatch`). That function runs callbacks, which may leave
//! it by longjmp(3) or an exception. The rules for groups, modes and settings are in the crate
//! `fanpcap`, which uses a handle through the traits in `life`.

pub mod data;
mod errbuf;
pub mod system;
pub mod pcap_handle;
mod apart;
mod message;
mod head;
mod installed;
mod away;
mod polled;
mod device_drops;
mod handles;
mod enter;
mod dispatch;
mod take_over;
mod life;
pub mod setters;
pub mod stats;
pub mod activate;
pub mod fanout;
pub mod open;
pub mod devices;
pub mod read;
pub mod socket;
