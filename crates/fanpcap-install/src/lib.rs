//! What is installed where, and what of it the machine's applications load: our library, the
//! programs beside the command, the loader's settings and AppArmor's.
#![forbid(unsafe_code)]

pub mod library;
mod external;
pub mod system;

pub use external::{Arguments, ExternalCommand};
