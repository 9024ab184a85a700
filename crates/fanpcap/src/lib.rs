//! The life of a handle: requests by settings and calls, activation on one device or several,
//! filters. Traits hide the system's library, our reader and the group.
#![forbid(unsafe_code)]

pub mod request;
pub mod overview;
pub mod handle;
mod plan;
mod default_mode;
mod placement;
mod warnings;
pub mod several;
pub mod polled;
pub mod engine;
pub mod gone;
pub mod activate;
pub mod fanout;
pub mod filter;
