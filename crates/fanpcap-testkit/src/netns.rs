//! Network namespaces for tests: a thread of its own in a new, quiet namespace.

use std::fs;
use std::panic;
use std::thread;

use anyhow::{Context, Result};
pub use fanpcap_linux::process::netns::{current, enter};

use crate::veth::ip;

/// Runs `work` on a thread of its own in a new network namespace, where lo is up and no IPv6
/// address is configured by itself, so that nothing but the test's own frames is on any wire. The
/// namespace and its devices end with the thread and the programs started in it.
///
/// # Errors
/// Those of `work`, or that the namespace can't be made (it needs root).
pub fn within_new<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let body = || {
        enter_quiet()?;
        work()
    };
    thread::scope(|scope| scope.spawn(body).join())
        .unwrap_or_else(|panicked| panic::resume_unwind(panicked))
}

/// Moves the calling thread to such a namespace.
///
/// # Errors
/// When the namespace can't be made (it needs root).
pub fn enter_quiet() -> Result<()> {
    fanpcap_linux::process::netns::enter_new()
        .context("a new network namespace (this needs root)")?;
    for which in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
        fs::write(&path, "1").with_context(|| format!("writing {path}"))?;
    }
    ip("link set lo up")
}
