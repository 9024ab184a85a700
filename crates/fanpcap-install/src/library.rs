//! Finds our libpcap for the command.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The library's soname.
pub const NAME: &str = "libpcap.so.0.8";

/// The directory of our library: `FANPCAP_LIB_DIR`, or else a directory relative to this
/// executable, as installed or built.
///
/// # Errors
/// No candidate directory contains the library.
pub fn directory() -> Result<PathBuf> {
    if let Some(directory) = env::var_os("FANPCAP_LIB_DIR") {
        return found(Path::new(&directory)).with_context(|| {
            let directory = Path::new(&directory).display();
            format!("FANPCAP_LIB_DIR is {directory}, where there is no {NAME}")
        });
    }
    let command = env::current_exe().context("where this command is")?;
    let directory = command.parent().context("where this command is")?;
    // The executable is in PREFIX/bin or PREFIX/libexec/fanpcap.
    let levels = if directory.ends_with("libexec/fanpcap") {
        2
    } else {
        1
    };
    let above = directory
        .ancestors()
        .nth(levels)
        .context("where this command is")?;
    let multiarch = format!("lib/{}-linux-gnu/fanpcap", env::consts::ARCH);
    // The last two directories are those of a build, for a command in target/release and for a
    // command in target/fanpcap/bin.
    let places = [
        multiarch.as_str(),
        "lib/fanpcap",
        "fanpcap/lib",
        "../fanpcap/lib",
    ];
    places
        .iter()
        .find_map(|place| found(&above.join(place)))
        .with_context(|| {
            let above = above.display();
            format!(
                "no {NAME} in {above}/{{{}}}: install it, or say where it is by FANPCAP_LIB_DIR",
                places.join(",")
            )
        })
}

/// `directory`, if it contains the library.
fn found(directory: &Path) -> Option<PathBuf> {
    let directory = directory.canonicalize().ok()?;
    directory.join(NAME).exists().then_some(directory)
}
