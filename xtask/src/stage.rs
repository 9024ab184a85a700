//! Builds and lays out the files for users: target/fanpcap/lib, include, bin, libexec and share.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::toolchain::Rust;
use crate::tree;

/// The library's soname on Debian and Ubuntu.
pub(crate) const LIBRARY: &str = "libpcap.so.0.8";
/// Links to the library: upstream's soname, and the linker's name.
pub(crate) const LINKS: [&str; 2] = ["libpcap.so.1", "libpcap.so"];
/// The extension's header, relative to the include directory.
pub(crate) const HEADER: &str = "pcap/fanout.h";
/// The command.
pub(crate) const COMMAND: &str = "fanpcap";
/// The bench, relative to the directory of executables that users do not run directly.
pub(crate) const BENCH: &str = "fanpcap/fanpcap-bench";

/// The program of a capture cluster, relative to the same directory as [`BENCH`].
pub(crate) const CLUSTER: &str = "fanpcap/fanpcap-cluster";

/// cargo's profile for all programs; the library has another profile.
const PROFILE: &str = "command";
/// The command's package.
const COMMANDS: &str = "-p fanpcap-cli --no-default-features";
/// The packages of all installed files.
pub(crate) const PACKAGES: [&str; 4] = [
    "fanpcap-abi",
    "fanpcap-cli",
    "fanpcap-bench",
    "fanpcap-clusterd",
];
/// The packages of all programs.
const ALL: &str = "-p fanpcap-cli -p fanpcap-bench -p fanpcap-clusterd";
/// Executable that makes the manual pages, and its package.
const MANUAL: &str = "fanpcap-manual";

/// Builds and stages the files, and prints how to use them.
pub(crate) fn run(build: fn() -> Result<()>) -> Result<()> {
    build()?;
    let staged = tree::staged()?;
    let (libraries, command) = (staged.join("lib"), staged.join("bin").join(COMMAND));
    println!(
        "The library is in {}, the command is {}. To share an interface, start this command twice:",
        libraries.display(),
        command.display()
    );
    println!(
        "  LD_LIBRARY_PATH={} PCAP_GROUP=5 tcpdump -ni eth0",
        libraries.display()
    );
    Ok(())
}

/// Builds and stages the files that most users need: the library and the command. If the programs
/// of bench and cluster were staged before, builds these again too, because the command refuses to
/// run programs of another build.
pub(crate) fn build() -> Result<()> {
    let libexec = tree::staged()?.join("libexec");
    if [BENCH, CLUSTER].iter().any(|it| libexec.join(it).exists()) {
        return everything();
    }
    tree::at_once(|| commands(COMMANDS), || library(&Rust::own())).map(drop)
}

/// Builds and stages all that can be installed.
pub(crate) fn everything() -> Result<()> {
    everything_with(&Rust::own())
}

/// Builds and stages all that can be installed, with a library built by the least version of Rust.
/// The tests and the Debian package use this library.
pub(crate) fn by_least() -> Result<()> {
    everything_with(&Rust::least_or_own())
}

fn everything_with(rust: &Rust) -> Result<()> {
    tree::at_once(|| commands(ALL), || library(rust))?;
    let libexec = tree::staged()?.join("libexec");
    let built = tree::built(&tree::target()?, PROFILE);
    place(&built.join("fanpcap-bench"), &libexec.join(BENCH))?;
    place(&built.join("fanpcap-cluster"), &libexec.join(CLUSTER))
}

fn library(rust: &Rust) -> Result<()> {
    let (staged, root) = (tree::staged()?, tree::root()?);
    place_library(&built_library(rust)?, &staged.join("lib"))?;
    let header = root.join("crates/fanpcap-abi/include").join(HEADER);
    place(&header, &staged.join("include").join(HEADER))
}

/// Builds the library with this toolchain, and returns its path.
pub(crate) fn built_library(rust: &Rust) -> Result<PathBuf> {
    tree::run(&mut rust.command("cargo", "build --release -p fanpcap-abi"))?;
    Ok(tree::built(&rust.dir()?, "release").join("libpcap.so"))
}

/// Builds these packages, which include the command, and makes the manual pages of their programs.
/// The pages of this machine's own build serve every architecture.
fn commands(packages: &str) -> Result<()> {
    let mut cargo = tree::cargo(&["build", "--profile", PROFILE])?;
    cargo.args(packages.split(' '));
    let is_own = tree::foreign().is_none();
    if is_own {
        cargo.args(["-p", MANUAL]);
    }
    tree::run(&mut cargo)?;
    let (staged, built) = (tree::staged()?, tree::built(&tree::target()?, PROFILE));
    place(&built.join(COMMAND), &staged.join("bin").join(COMMAND))?;
    if is_own {
        return write_manual(&built.join(MANUAL), &staged.join("share/man"));
    }
    let pages = staged.join("share/man/man1");
    ensure!(
        pages.exists(),
        "no {}: build for this machine first, which makes the manual pages",
        pages.display()
    );
    Ok(())
}

/// Writes the generated manual pages, and removes the pages of earlier builds.
fn write_manual(maker: &Path, manual: &Path) -> Result<()> {
    tree::remove(manual)?;
    tree::run(Command::new(maker).arg(manual))
}

/// Copies the library and its links into a directory.
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

/// Copies a file and renames the copy, so that running applications keep the mapped file.
pub(crate) fn place(from: &Path, to: &Path) -> Result<()> {
    let fresh = fresh(to)?;
    fs::copy(from, &fresh)
        .with_context(|| format!("copying {} to {}", from.display(), fresh.display()))?;
    rename(&fresh, to)
}

/// Writes a file under a temporary name and renames it, like [`place`].
pub(crate) fn place_text(text: &str, to: &Path) -> Result<()> {
    let fresh = fresh(to)?;
    fs::write(&fresh, text).with_context(|| format!("writing {}", fresh.display()))?;
    rename(&fresh, to)
}

/// A temporary name in the directory of `to`. Creates the directory.
fn fresh(to: &Path) -> Result<PathBuf> {
    let dir = to.parent().context("a file in a directory")?;
    tree::make(dir)?;
    let name = to.file_name().context("a file's name")?.to_string_lossy();
    Ok(dir.join(format!(".{name}.new")))
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| format!("renaming {} to {}", from.display(), to.display()))
}
