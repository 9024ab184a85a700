//! The user interface that fanpcap's programs share: standard streams, completion, metrics, the
//! service manager.
#![forbid(unsafe_code)]

pub mod streams;
pub mod table;
mod at_least_one;
mod seconds;
mod device;
mod group_number;
mod line;
pub mod complete;
pub mod exposition;
pub mod textfile;
pub mod server;
pub mod notify;

pub use at_least_one::at_least_one;
pub use device::DeviceArgument;
pub use group_number::group_number;
pub use line::parse;
pub use seconds::seconds;
