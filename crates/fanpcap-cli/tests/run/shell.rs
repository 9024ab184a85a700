//! Command lines of the documents, run by a shell in a directory of their own.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::library::library_dir;
use fanpcap_testkit::{Scratch, member};

/// Starts a command line. The shell finds `fanpcap` by PATH.
pub(crate) fn start(scratch: &Scratch, line: &str) -> Result<Child> {
    // The command finds the staged library next to itself.
    library_dir()?;
    let command = Path::new(env!("CARGO_BIN_EXE_fanpcap"));
    let bin = command.parent().context("its directory")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(scratch.file(""));
    shell.env("PATH", format!("{}:{path}", bin.display()));
    for name in ["PCAP_CONFIG", "LD_LIBRARY_PATH", "FANPCAP_LIB_DIR"] {
        shell.env_remove(name);
    }
    shell.stdin(Stdio::null()).process_group(0);
    shell.stdout(File::create(scratch.file("stdout"))?);
    shell.stderr(File::create(scratch.file("stderr"))?);
    shell.spawn().context(line.to_owned())
}

pub(crate) fn said(scratch: &Scratch) -> String {
    fs::read_to_string(scratch.file("stderr")).unwrap_or_default()
}

/// Waits until the command has written `text` to standard error.
pub(crate) fn wait_for(scratch: &Scratch, shell: &mut Child, text: &str) -> Result<()> {
    await_for(text, LIMIT, || {
        ensure!(shell.try_wait()?.is_none(), "it ended");
        Ok(said(scratch).contains(text).then_some(()))
    })
    .with_context(|| said(scratch))
}

/// Ends `fanpcap run` as Ctrl-C does. Returns what it wrote to standard error.
pub(crate) fn end(scratch: &Scratch, shell: &mut Child) -> Result<String> {
    member::signal(command(shell)?, "INT")?;
    let status = await_for("its end", LIMIT, || Ok(shell.try_wait()?));
    let status = status.with_context(|| said(scratch))?;
    ensure!(status.success(), "{status}: {}", said(scratch));
    Ok(said(scratch))
}

/// The number of packets that all copies took, from the summary.
pub(crate) fn taken(said: &str) -> Result<usize> {
    let line = said
        .lines()
        .find_map(|line| line.strip_prefix("fanpcap: all "));
    let line = line.with_context(|| format!("no summary: {said}"))?;
    let figures = line.split_whitespace().nth(3);
    Ok(figures.context(line.to_owned())?.parse()?)
}

/// The process of `fanpcap run`. It is the shell's process if the shell has executed the command
/// without a fork, and otherwise the shell's child.
pub(crate) fn command(shell: &Child) -> Result<u32> {
    let pid = shell.id();
    let is_it = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.trim() == "fanpcap")
    };
    if is_it(&pid) {
        return Ok(pid);
    }
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let mut children = children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok());
    children.find(is_it).context("fanpcap run is not there")
}
