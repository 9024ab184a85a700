//! Builds the library and lays out what users load: target/fanpcap/lib and target/fanpcap/include.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};

use crate::tree;

/// The name that programs ask the loader for on Debian and Ubuntu.
pub(crate) const LIBRARY: &str = "libpcap.so.0.8";
/// The same library under upstream's name, and the linker's.
pub(crate) const LINKS: [&str; 2] = ["libpcap.so.1", "libpcap.so"];
/// The extension's header, relative to the directory that is included.
pub(crate) const HEADER: &str = "pcap/fanout.h";

/// Stages and says how to use it.
pub(crate) fn run() -> Result<()> {
    build()?;
    let library_dir = tree::staged()?.join("lib");
    println!(
        "fanpcap is in {}. To share an interface, start this twice:",
        library_dir.display()
    );
    println!(
        "  LD_LIBRARY_PATH={} PCAP_GROUP=5 tcpdump -ni eth0",
        library_dir.display()
    );
    Ok(())
}

/// Builds and stages.
pub(crate) fn build() -> Result<()> {
    tree::run(&mut tree::cargo(&[
        "build",
        "--release",
        "--quiet",
        "-p",
        "fanpcap-abi",
    ])?)?;
    let (staged, root) = (tree::staged()?, tree::root()?);
    place_library(
        &tree::target()?.join("release/libpcap.so"),
        &staged.join("lib"),
    )?;
    let header = root.join("crates/fanpcap-abi/include").join(HEADER);
    place(&header, &staged.join("include").join(HEADER))
}

/// Puts the library and its other names into a directory.
pub(crate) fn place_library(library: &Path, dir: &Path) -> Result<()> {
    place(library, &dir.join(LIBRARY))?;
    for link in LINKS {
        let fresh = dir.join(format!(".{link}.new"));
        let _ = fs::remove_file(&fresh);
        symlink(LIBRARY, &fresh).with_context(|| format!("making {}", fresh.display()))?;
        rename(&fresh, &dir.join(link))?;
    }
    Ok(())
}

/// Copies a file by a rename, so that running programs keep the one that they have mapped.
pub(crate) fn place(from: &Path, to: &Path) -> Result<()> {
    let dir = to.parent().context("a file in a directory")?;
    fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    let name = to.file_name().context("a file's name")?.to_string_lossy();
    let fresh = dir.join(format!(".{name}.new"));
    fs::copy(from, &fresh)
        .with_context(|| format!("copying {} to {}", from.display(), fresh.display()))?;
    rename(&fresh, to)
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| format!("renaming {} to {}", from.display(), to.display()))
}
