//! Where our libpcap is, seen from the command.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The name by which programs ask for it.
pub const NAME: &str = "libpcap.so.0.8";

/// The directory of our library: `FANPCAP_LIB_DIR`, else beside this program, as it was installed
/// or built.
///
/// # Errors
/// The library is in none of these places.
pub fn directory() -> Result<PathBuf> {
    if let Some(directory) = env::var_os("FANPCAP_LIB_DIR") {
        return found(Path::new(&directory)).with_context(|| {
            let directory = Path::new(&directory).display();
            format!("FANPCAP_LIB_DIR is {directory}, where there is no {NAME}")
        });
    }
    let command = env::current_exe().context("where this command is")?;
    let directory = command.parent().context("where this command is")?;
    // PREFIX/bin, PREFIX/libexec/fanpcap.
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
    // The last two are the build's: the command in target/release, and staged in
    // target/fanpcap/bin.
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

/// The directory, if the library is in it.
fn found(directory: &Path) -> Option<PathBuf> {
    let directory = directory.canonicalize().ok()?;
    directory.join(NAME).exists().then_some(directory)
}
