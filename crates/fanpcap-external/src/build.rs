//! Which build a program is of: the command runs `fanpcap-bench` and `fanpcap-cluster` only if they
//! are of its own.

/// The version, and a fingerprint of the command's sources.
pub const BUILD: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("FANPCAP_FINGERPRINT"),
    ")"
);
