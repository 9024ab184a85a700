//! `fanpcap poller` as a user runs it, on pairs of devices in network namespaces. Members are those
//! of the library: other processes would be no different.
#![forbid(unsafe_code)]

mod devices;
mod doctored;
mod dpdk;
mod dpdk_frames;
mod ends;
mod filtered;
mod members;
mod refused;
mod running;
mod sending;
mod stolen;
mod tcpdump;
mod watched;

/// The devices: frames that are sent on the first one arrive at the second one.
const NEAR: &str = "fppnear";
const FAR: &str = "fppfar";
