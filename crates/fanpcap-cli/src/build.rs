//! Which build the command is of: `fanpcap-bench`, a program of its own, must be of the same.

/// The version, and a fingerprint of the sources that both are built from.
pub const BUILD: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("FANPCAP_FINGERPRINT"),
    ")"
);
