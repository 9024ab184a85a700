//! Settings: makes the plan of a handle from pcap.conf, the variables `PCAP_*` and the
//! application's call.
#![forbid(unsafe_code)]

pub mod report;
pub mod driver;
pub mod device;
pub mod mode;
pub mod source;
pub mod fanout;
pub mod steering;
pub mod settings;
