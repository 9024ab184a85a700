//! A handle's life: what is asked of it by settings and calls, its activation on one device or
//! several, its filter. The system's library, our reader and the group are behind a trait.
#![forbid(unsafe_code)]

pub mod request;
pub mod handle;
mod plan;
mod warnings;
mod single;
pub mod several;
pub mod activate;
pub mod fanout;
pub mod filter;
