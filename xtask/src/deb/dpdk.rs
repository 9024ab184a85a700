//! The plugin for DPDK, and the Debian package of it:
//! target/fanpcap-dpdk/fanpcap-dpdk_VERSION_ARCHITECTURE.deb. It is built for the DPDK of this
//! machine. Nothing else of fanpcap needs DPDK.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Package, Texts, pack, take, texts};
use crate::{install, stage, tree};

/// Builds the plugin and stages it, where the staged command finds it.
pub(crate) fn stage() -> Result<()> {
    let to = tree::staged()?.join(install::PLUGIN);
    stage::place(&build()?, &to)?;
    println!("built {}", to.display());
    Ok(())
}

/// Builds the package, and prints its path.
pub(crate) fn package() -> Result<()> {
    let package = Package::new()?;
    let to = tree::target()?.join("fanpcap-dpdk");
    let work = to.join("deb");
    let plugin = build()?;
    tree::remove(&work)?;
    stage::place(&plugin, &work.join("usr").join(install::PLUGIN))?;
    let texts = Texts {
        directory: "debian-dpdk",
        source: "fanpcap-dpdk",
        copyright: texts::with_license("packaging/debian-dpdk/copyright.in")?,
    };
    pack(&package, &work, &texts)?;
    let file = take(&work, &to)?;
    println!("built {}", file.display());
    Ok(())
}

/// Compiles the plugin, and returns its path.
fn build() -> Result<PathBuf> {
    let to = tree::target()?.join("fanpcap-dpdk");
    tree::make(&to)?;
    let plugin = to.join("fanpcap-dpdk.so");
    let source = tree::root()?.join("crates/fanpcap-dpdk/plugin/fanpcap-dpdk.c");
    let mut compiler = Command::new("cc");
    compiler.args(FLAGS.split(' ')).args(ask("--cflags")?);
    compiler
        .arg(&source)
        .arg("-o")
        .arg(&plugin)
        .args(ask("--libs")?);
    tree::run(compiler.args(LINK.split(' ')))?;
    Ok(plugin)
}

/// DPDK's own flags follow these. Its headers need GNU C.
const FLAGS: &str = "-std=gnu11 -O3 -Wall -Wextra -fPIC -fvisibility=default -shared -s";
/// The drivers without which no device can be opened: the package then depends on them. Of DPDK's
/// other libraries, only those are linked whose functions the plugin calls.
const LINK: &str = "-Wl,--no-as-needed -lrte_mempool_ring -lrte_bus_vdev -lrte_bus_pci \
                    -Wl,-z,relro,-z,now -pthread";

/// What pkg-config says of DPDK.
fn ask(what: &str) -> Result<Vec<String>> {
    let said = tree::output(Command::new("pkg-config").args([what, "libdpdk"]));
    let said = said.context("DPDK's headers (libdpdk-dev and pkg-config)")?;
    Ok(said.split_whitespace().map(str::to_owned).collect())
}
