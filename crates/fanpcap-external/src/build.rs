//! Identifies the build that a program comes from. The `fanpcap` command runs `fanpcap-bench` and
//! `fanpcap-cluster` only if they come from its own build.

/// The version and a fingerprint of the command's sources.
pub const BUILD: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("FANPCAP_FINGERPRINT"),
    ")"
);
