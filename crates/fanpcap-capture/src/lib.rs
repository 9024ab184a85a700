//! `fanpcap capture`, and the threads in which it reads handles. Each thread counts its packets and
//! writes them to its own savefile.

#![forbid(unsafe_code)]

mod counts;
mod savefile;
mod shared;
mod counter;
mod thread;
mod threads;
mod command;

use fanpcap_pcap::Header;

pub use command::{Arguments, Task, Witnessed, run, witnessed};
pub use counts::{Counts, Kernel, Rest, sum};
pub use savefile::{Savefile, Savefiles, THREAD};
pub use shared::ThreadCounts;
pub use thread::{Done, Reader};
pub use threads::Threads;

/// A callback that gets each packet of a thread.
pub type Each = Box<dyn FnMut(&Header, &[u8]) + Send>;
