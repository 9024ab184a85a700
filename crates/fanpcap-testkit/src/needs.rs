//! Checks requirements that a machine may lack. If a requirement is missing, the test prints SKIP
//! and ends.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use anyhow::{Result, bail};

/// A header of the system's libpcap, against which programs are compiled.
const HEADER: &str = "/usr/include/pcap/pcap.h";

/// Checks that C programs can be compiled against libpcap.
///
/// # Errors
/// The headers are missing. This function has then printed SKIP, so the test counts as skipped,
/// even if it returns the error.
#[allow(clippy::print_stdout, reason = "the tiers read it in a test's output")]
pub fn libpcap_headers() -> Result<()> {
    if !Path::new(HEADER).exists() {
        println!("SKIP: no {HEADER} here (libpcap0.8-dev)");
        bail!("no {HEADER}");
    }
    Ok(())
}

/// Checks that kernel threads are visible. Processes of a nested PID namespace see no kernel
/// threads.
///
/// # Errors
/// No kernel thread is visible. This function has then printed SKIP.
#[allow(clippy::print_stdout, reason = "the tiers read it in a test's output")]
pub fn kernel_threads() -> Result<()> {
    // Process 2 starts all other kernel threads.
    if !fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        println!("SKIP: this PID namespace shows no kernel threads");
        bail!("no kernel threads");
    }
    Ok(())
}

/// Checks that these programs are installed. If not, this function prints SKIP.
#[allow(clippy::print_stdout, reason = "the tiers read it in a test's output")]
pub fn programs(names: &[&str]) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_here = |name: &str| env::split_paths(&path).any(|it| it.join(name).is_file());
    let absent = names.iter().find(|name| !is_here(name));
    if let Some(name) = absent {
        println!("SKIP: no {name} here");
    }
    absent.is_none()
}

/// Checks that processes may make user namespaces, which they may not in a chroot(2). If not, this
/// function prints SKIP.
#[allow(clippy::print_stdout, reason = "the tiers read it in a test's output")]
pub fn user_namespaces() -> bool {
    let made = Command::new("unshare").args(["--user", "true"]).output();
    let is_made = made.is_ok_and(|it| it.status.success());
    if !is_made {
        println!("SKIP: no user namespaces here");
    }
    is_made
}
