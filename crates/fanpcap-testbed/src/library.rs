//! Finds the staged libpcap.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The directory with our libpcap.so.0.8: `FANPCAP_LIB_DIR`, or else the directory in which the
/// workspace stages it.
///
/// # Errors
/// The library isn't there.
pub fn library_dir() -> Result<PathBuf> {
    let dir = env::var_os("FANPCAP_LIB_DIR").map_or_else(|| staged().join("lib"), PathBuf::from);
    let library = dir.join("libpcap.so.0.8");
    ensure!(
        library.exists(),
        "no {}: build it first (make)",
        library.display()
    );
    dir.canonicalize().context("the library's directory")
}

/// The directory in which the workspace stages what it builds.
pub fn staged() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fanpcap")
}
