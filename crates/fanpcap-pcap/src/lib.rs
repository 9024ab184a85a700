//! The system's libpcap: finds it, loads it beside ours, declares its functions and structs, and
//! wraps handles in safe Rust.

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "fanpcap is for 64-bit machines: the layouts of libpcap's structs are not known for others"
);

mod elf;
pub mod ldcache;
mod object;
mod loader;
mod structs;
pub mod functions;
mod error;
mod handle;
mod compiled;
mod read;
mod library;
mod expressions;
mod created;
mod system;

pub use created::Created;
pub use error::Error;
pub use expressions::compile_expression;
pub use handle::{Break, Handle, Precision};
pub use library::{Library, OpenError};
pub use object::SocketFunction;
pub use read::Dispatched;
pub use structs::{BpfProgram, Callback, FanoutStat, FanoutStats, Header, Pcap, Stats};
pub use system::System;
