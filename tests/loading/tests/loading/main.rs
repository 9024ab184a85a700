//! The ways in which an application loads our library, and its guarantees afterwards.

mod beside;
mod callbacks;
mod cancelled;
mod engine;
mod first;
mod live;
mod missing;
mod raised;
mod runtimes;
mod sanitizers;
mod ways;
