//! Requirements that a machine may lack: the test then prints SKIP, and ends.

use std::fs;
use std::path::Path;

use anyhow::{Result, bail};

/// The system's libpcap to compile against.
const HEADER: &str = "/usr/include/pcap/pcap.h";

/// Goes on where C programs can be compiled against libpcap.
///
/// # Errors
/// After it has said SKIP: the test counts as skipped, however it ends.
#[allow(clippy::print_stdout, reason = "the tiers read it in a test's output")]
pub fn libpcap_headers() -> Result<()> {
    if !Path::new(HEADER).exists() {
        println!("SKIP: no {HEADER} here (libpcap0.8-dev)");
        bail!("no {HEADER}");
    }
    Ok(())
}

/// Goes on where processes of the kernel are seen: those of a nested PID namespace see none.
///
/// # Errors
/// After it has said SKIP.
#[allow(clippy::print_stdout, reason = "the tiers read it in a test's output")]
pub fn kernel_threads() -> Result<()> {
    // The one that starts all others.
    if !fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        println!("SKIP: this PID namespace shows no kernel threads");
        bail!("no kernel threads");
    }
    Ok(())
}
