//! Subcommands of `fanpcap` that are programs of their own: they are found and run if they are of
//! the command's build.
#![forbid(unsafe_code)]

mod build;
mod command;

pub use build::BUILD;
pub use command::{Arguments, ExternalCommand};
