//! Network namespaces for tests: a thread in a new, quiet namespace.

use std::fs;
use std::panic;
use std::thread;

use anyhow::{Context, Result};
use fanpcap_linux::interface;
pub use fanpcap_linux::process::netns::{current, enter};

use crate::veth::{await_up, ip};

/// Runs `work` on a thread in a new network namespace. In the namespace, lo is up, and the kernel
/// configures no IPv6 address by itself, so that only the test's frames are on the wires. The
/// namespace and its devices exist until the thread and all processes started in it have ended.
///
/// # Errors
/// The errors of `work`; or the namespace can't be created (this needs root).
pub fn within_new<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let body = || {
        enter_quiet()?;
        work()
    };
    thread::scope(|scope| scope.spawn(body).join())
        .unwrap_or_else(|panicked| panic::resume_unwind(panicked))
}

/// Runs a test in a namespace that [`within_new`] makes. In it, the devices va and vb are a veth
/// pair with the kernel's default settings, and both are up. The test gets the index of vb.
///
/// # Panics
/// The test panics, or the namespace or the pair can't be created (this needs root).
pub fn on_pair(test: impl FnOnce(u32) + Send) {
    let run = || {
        ip("link add va type veth peer name vb")?;
        ip("link set va up")?;
        ip("link set vb up")?;
        ["va", "vb"].into_iter().try_for_each(await_up)?;
        test(interface::index("vb").context("no device vb")?);
        Ok(())
    };
    within_new(run).expect("a pair of devices");
}

/// Moves the calling thread to a new namespace, as in [`within_new`].
///
/// # Errors
/// The namespace can't be created (this needs root).
pub fn enter_quiet() -> Result<()> {
    fanpcap_linux::process::netns::enter_new()
        .context("a new network namespace (this needs root)")?;
    for which in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
        fs::write(&path, "1").with_context(|| format!("writing {path}"))?;
    }
    ip("link set lo up")
}
