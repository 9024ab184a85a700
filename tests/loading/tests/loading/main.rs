//! Every way in which a program gets to our library, and what it then may rely on.

mod callbacks;
mod engine;
mod live;
mod raised;
mod runtimes;
mod ways;
