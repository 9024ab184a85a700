//! Where our library is installed, and which applications of the machine load it: the loader's
//! settings and AppArmor's, `fanpcap enable` and `fanpcap disable`.
#![forbid(unsafe_code)]

pub mod library;
pub mod system;
