//! What goes wrong with captures, and what mends it: `fanpcap doctor` looks, `fanpcap verify` tries it
//! out on a device, `fanpcap tune` sets a device up.
#![forbid(unsafe_code)]

mod flow;
pub mod doctor;
pub mod verify;
pub mod tune;
