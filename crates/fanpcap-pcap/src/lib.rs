//! The system's libpcap: found and loaded beside ours, its functions and structs, and handles in safe Rust.

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "fanpcap is for 64-bit machines: the layouts of libpcap's structs are not known for others"
);

mod elf;
pub mod ldcache;
pub mod loader;
mod functions;
mod library;
mod handle;
mod compiled;
mod created;
mod read;

pub use created::Created;
pub use functions::{FanoutStats, Header, Stats};
pub use handle::{Break, Handle, Precision};
pub use library::{Error, Library, LoadError};
pub use read::Dispatched;
