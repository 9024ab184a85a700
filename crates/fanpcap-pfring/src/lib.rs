//! PF_RING by its library, `libpfring.so`, as its header pfring.h publishes the library. The
//! library is loaded when the first ring is opened, and is never linked: a process that opens no
//! ring needs none of it.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("fanpcap is for 64-bit machines: the layouts of pfring.h are not known for others");

mod functions;
mod error;
mod environment;
mod ring;

pub use error::{OpenError, check};
pub use ring::{Counts, Handle, Options, Received, Receiver, open};
