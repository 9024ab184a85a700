//! Starts applications on the XDP engine at a wire's end, and has checks for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fanpcap_netns::{DEVICE, Wire};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::veth::has_xdp;
use fanpcap_testkit::{Member, Program};

/// tcpdump on the XDP engine, at the wire's end.
pub(crate) fn tcpdump(wire: &Wire) -> Result<Program> {
    Ok(wire.tcpdump()?.set("PCAP_DRIVER", "xdp"))
}

/// Starts tcpdump and checks that it uses the engine, not packet sockets.
pub(crate) fn start(wire: &Wire) -> Result<Member> {
    start_as(wire, tcpdump(wire)?)
}

/// Starts an application and checks that it uses the engine, not packet sockets.
pub(crate) fn start_as(wire: &Wire, program: Program) -> Result<Member> {
    let member = program.start(&wire.scratch)?;
    let said = member.said()?;
    ensure!(!said.contains("packet sockets"), "{said}");
    Ok(member)
}

/// Compiles a source in `c` to a library that can be preloaded into applications.
pub(crate) fn preload(wire: &Wire, name: &str) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("c/{name}.c"));
    let object = wire.scratch.file(&format!("{name}.so"));
    let mut cc = Command::new("cc");
    cc.args([
        "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o",
    ]);
    let done = cc.arg(&object).arg(source).status().context("cc")?;
    ensure!(done.success(), "cc: {done}");
    Ok(object)
}

/// Waits until the device has no XDP program.
pub(crate) fn await_free_device() -> Result<()> {
    await_for("the device to have no XDP program", LIMIT, || {
        Ok((!has_xdp(DEVICE)?).then_some(()))
    })
}

/// Checks that docs/errors.md has an application's message.
pub(crate) fn ensure_on_page(text: &str) -> Result<()> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
    let page = fs::read_to_string(page)?;
    // The page may break its lines anywhere.
    let words: Vec<&str> = page.split_whitespace().collect();
    ensure!(
        words.join(" ").contains(text),
        "docs/errors.md lacks {text:?}"
    );
    Ok(())
}
