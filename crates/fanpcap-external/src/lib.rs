//! Subcommands of `fanpcap` that are separate programs. The functions locate these programs, and
//! run them only if they come from the command's own build.
#![forbid(unsafe_code)]

mod build;
mod command;
mod user;

pub use build::BUILD;
pub use command::{Arguments, ExternalCommand};
pub use user::{User, group_of_users};
