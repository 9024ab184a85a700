//! Finds where our library is installed and which applications of the machine load it. Changes the
//! settings of the loader and of AppArmor for `fanpcap enable` and `fanpcap disable`.
#![forbid(unsafe_code)]

pub mod library;
pub mod mapped;
pub mod system;
