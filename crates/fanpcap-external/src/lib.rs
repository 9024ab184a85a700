//! Subcommands of `fanpcap` that are separate programs. They are located, and run only if they come
//! from the command's own build.
#![forbid(unsafe_code)]

mod build;
mod command;

pub use build::BUILD;
pub use command::{Arguments, ExternalCommand};
