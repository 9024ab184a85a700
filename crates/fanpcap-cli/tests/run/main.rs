//! Runs `fanpcap run` as users run it, on a separate veth pair. The copies are of tcpdump and of
//! programs that never capture.
#![forbid(unsafe_code)]

mod shell;
mod guide;
mod pages;
mod captures;
mod differing;
mod endings;
mod founded;
mod founded_killed;
mod founded_xdp;
mod gone;
mod ledger;
mod last_packets;
mod merged;
mod members;
mod nowhere;
mod outsiders;
mod polled;
mod remains;
mod scripts;
mod stolen;
mod turns;
mod unwritten;
mod xdp;

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::library::library_dir;
use fanpcap_testkit::{Capture, Scratch, member};
use serde_json::Value;

const NEAR: &str = "run-a";
const FAR: &str = "run-b";
const GROUP: u16 = 4711;

/// The running command, in a separate directory.
struct Running {
    scratch: Scratch,
    process: Child,
}

/// The command after its end: its exit status and its files.
struct Ended {
    scratch: Scratch,
    status: ExitStatus,
}

impl Running {
    /// Starts `fanpcap run OPTIONS --json summary.json -- COMMAND`.
    fn start(options: &[&str], command: &[&str]) -> Result<Self> {
        let line = ["--json", "summary.json", "--"];
        Self::start_by(&[], &[options, &line, command].concat(), None)
    }

    /// Starts `THROUGH fanpcap run LINE`. Standard output goes to a file unless `stdout` is given.
    fn start_by(through: &[&str], line: &[&str], stdout: Option<Stdio>) -> Result<Self> {
        let scratch = Scratch::new()?;
        let own = env!("CARGO_BIN_EXE_fanpcap");
        let words = [through, &[own, "run"], line].concat();
        let mut process = Command::new(words[0]);
        process.args(&words[1..]);
        process.current_dir(scratch.file(""));
        let library = library_dir().or_else(|_| stand_in(&scratch))?;
        process.env("FANPCAP_LIB_DIR", library);
        process.env("PCAP_CONFIG", "/dev/null").stdin(Stdio::null());
        let file = File::create(scratch.file("stdout"))?;
        process.stdout(stdout.unwrap_or_else(|| file.into()));
        process.stderr(File::create(scratch.file("stderr"))?);
        let process = process.spawn()?;
        Ok(Self { scratch, process })
    }

    /// Starts two copies of tcpdump that write to `write`, and waits until both capture.
    fn tcpdumps(options: &[&str], write: &str) -> Result<Self> {
        let group = GROUP.to_string();
        let options = [&["-n", "2", "--group", &group, "--cpus", "none"], options].concat();
        let mut command = vec![
            "tcpdump", "-n", "-U", "-Z", "root", "-B", "16384", "-i", FAR,
        ];
        command.extend(["-w", write]);
        let running = Self::start(&options, &command)?;
        running.wait_until_says("0: tcpdump: listening", 1)?;
        running.wait_until_says("1: tcpdump: listening", 1)?;
        member::wait_for_members(GROUP, 2)?;
        Ok(running)
    }

    fn said(&self) -> String {
        said(&self.scratch)
    }

    fn wait_until_says(&self, text: &str, times: usize) -> Result<()> {
        await_for(&format!("{text:?}, {times} times"), LIMIT, || {
            Ok((self.said().matches(text).count() >= times).then_some(()))
        })
        .with_context(|| self.said())
    }

    /// Waits until the captures have `packets` packets together.
    fn wait_for_packets(&self, captures: &[&str], packets: usize) -> Result<()> {
        let count = || -> usize {
            let paths = captures.iter().map(|name| self.scratch.file(name));
            paths.map(|path| Capture::count_so_far(&path)).sum()
        };
        await_for("the last packets", LIMIT, || {
            Ok((count() >= packets).then_some(()))
        })
        .with_context(|| format!("{} of {packets} packets", count()))
    }

    /// The process of a copy.
    fn copy(&self, number: usize) -> Result<u32> {
        let parent = self.process.id().to_string();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")?.flatten() {
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let of_stat = stat.rsplit_once(')').map(|(_, rest)| rest.to_owned());
            let is_child = of_stat.and_then(|rest| Some(rest.split_whitespace().nth(1)? == parent));
            let mark = format!("\0{number}.pcap\0");
            if is_child == Some(true) && line.ends_with(mark.as_bytes()) {
                found.push(pid);
            }
        }
        match found[..] {
            [pid] => Ok(pid),
            _ => bail!("copy {number} is {found:?}"),
        }
    }

    fn signal(&self, name: &str) -> Result<()> {
        member::signal(self.process.id(), name)
    }

    fn wait(self) -> Result<Ended> {
        self.wait_for(LIMIT)
    }

    fn wait_for(mut self, limit: Duration) -> Result<Ended> {
        let status = await_for("its end", limit, || Ok(self.process.try_wait()?));
        let status = status.with_context(|| self.said())?;
        let scratch = std::mem::replace(&mut self.scratch, Scratch::new()?);
        Ok(Ended { scratch, status })
    }

    fn stop(self) -> Result<Ended> {
        self.signal("INT")?;
        let ended = self.wait()?;
        ensure!(
            ended.status.success(),
            "{}: {}",
            ended.status,
            said(&ended.scratch)
        );
        Ok(ended)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The copies end when the command ends.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Ended {
    fn said(&self) -> String {
        said(&self.scratch)
    }

    fn stdout(&self) -> Vec<u8> {
        fs::read(self.scratch.file("stdout")).expect("the file of its output")
    }

    fn summary(&self) -> Value {
        let json = fs::read(self.scratch.file("summary.json")).expect("a summary");
        serde_json::from_slice(&json).expect("JSON")
    }
}

/// Creates an empty file in place of our library, which may not have been built. The file is enough
/// for copies that never capture. Returns its directory.
fn stand_in(scratch: &Scratch) -> Result<PathBuf> {
    let directory = scratch.file("lib");
    fs::create_dir(&directory)?;
    File::create(directory.join("libpcap.so.0.8"))?;
    Ok(directory)
}

fn said(scratch: &Scratch) -> String {
    let bytes = fs::read(scratch.file("stderr")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The command's output.
fn printed(words: &[&str]) -> Result<String> {
    let done = Command::new(env!("CARGO_BIN_EXE_fanpcap"))
        .args(words)
        .env("PCAP_CONFIG", "/dev/null")
        .output()?;
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
