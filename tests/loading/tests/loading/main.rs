//! Every way in which a program gets to our library, and what it then may rely on.

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
