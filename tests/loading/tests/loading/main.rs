//! The ways in which an application loads our library, and what our library guarantees after that.

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
