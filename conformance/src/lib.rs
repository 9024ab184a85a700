//! Differential tests: a C program for each behaviour of libpcap, whose output must be the same on
//! the system's library and on ours.
#![forbid(unsafe_code)]

pub mod behaviour;
pub mod difference;
pub mod parallel;
pub mod variant;
pub mod outside;
pub mod poller;
pub mod reasons;
pub mod run;
pub mod symbols;
pub mod matrix;

pub use behaviour::Behaviour;
pub use variant::Variant;
