//! Finds and fixes problems of captures. `fanpcap doctor` examines, `fanpcap verify` captures on a
//! device and checks the result, and `fanpcap tune` sets up a device.
#![forbid(unsafe_code)]

mod flow;
pub mod doctor;
pub mod verify;
pub mod tune;
