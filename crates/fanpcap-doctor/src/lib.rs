//! What goes wrong with captures, and what mends it: `fanpcap doctor` looks, `fanpcap verify`
//! captures on a device and checks the result, `fanpcap tune` sets a device up.
#![forbid(unsafe_code)]

mod flow;
pub mod doctor;
pub mod verify;
pub mod tune;
