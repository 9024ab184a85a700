//! Runs each command in the guide's table of applications exactly as the table shows it: without
//! other settings, on a device named eth0, with conversations between two hosts.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::hosts::Hosts;
use fanpcap_testkit::{Capture, Scratch, member, netns};

use crate::shell::{command, start, taken};

const GUIDE: &str = include_str!("../../../../docs/guide.md");
const DEVICE: &str = "eth0";

/// Number of conversations of each kind. The kinds are TCP and UDP, over IPv4 and IPv6.
const EACH: usize = 16;

/// The time that the programs get to read all packets. No program reports that it has read
/// everything, so this time is longer than the timeout of a ring's block, which is a second. It is
/// also the time after the start in which dumpcap opens its device a second time and members get
/// their shares.
const GRACE: Duration = Duration::from_millis(2500);

/// A row of the table.
struct Row {
    application: &'static str,
    command: &'static str,
}

/// The rows with a command that starts copies.
fn rows() -> Vec<Row> {
    let (_, section) = GUIDE
        .split_once("\n## Applications\n")
        .expect("its heading");
    let lines = section
        .lines()
        .skip_while(|line| !line.starts_with("| ---"));
    let table = lines.skip(1).take_while(|line| line.starts_with('|'));
    let row = |line: &'static str| {
        let mut cells = line.trim_matches('|').split(" | ").map(str::trim);
        let (application, cell) = (cells.next()?, cells.next()?);
        let command = cell.strip_prefix('`')?.strip_suffix('`')?;
        command.contains("fanpcap run").then_some(Row {
            application,
            command,
        })
    };
    table.filter_map(row).collect()
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn each_row_of_applications_works_as_it_is_written() {
    let rows = rows();
    assert!(rows.len() >= 10, "{} rows", rows.len());
    let mut failed = Vec::new();
    for row in rows {
        if let Some(hindrance) = row.hindrance() {
            println!("SKIP: {}: {hindrance}", row.application);
            continue;
        }
        match netns::within_new(|| row.run()) {
            Ok(found) => println!("{}: {found}", row.application),
            Err(error) => failed.push(format!("{}: {error:?}", row.application)),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

impl Row {
    /// The program that the copies run.
    fn program(&self) -> &'static str {
        let (_, line) = self.command.split_once(" -- ").expect("its copies' line");
        line.split(' ').next().unwrap_or_default()
    }

    fn hindrance(&self) -> Option<String> {
        let name = self.program();
        let found = Command::new("sh")
            .args(["-c", &format!("command -v {name}")])
            .output();
        let found = found.is_ok_and(|found| found.status.success());
        // The command may name a config file, which the table does not contain.
        let needs = self.command.split(' ').find(|word| word.ends_with(".conf"));
        match needs {
            _ if !found => Some(format!("no {name} here")),
            Some(file) => Some(format!("it reads {file}, which the user has")),
            None => None,
        }
    }

    /// Whether the program opens its handle with a timeout of 0. Such a program gets packets only
    /// when a block of its ring is full, so the test can't expect all packets.
    fn reads_blocks(&self) -> bool {
        self.program() == "softflowd"
    }

    /// The program's exit status after an interrupt, with any libpcap. softflowd in the foreground
    /// does not handle the signal, so the signal kills it. pmacctd's parent process fails because
    /// the signal has also ended its child. ngrep fails because it has found no packet with the
    /// word.
    fn status(&self) -> i32 {
        match self.program() {
            "softflowd" => 130,
            "pmacctd" | "ngrep" => 1,
            _ => 0,
        }
    }

    /// Runs the command while the hosts talk, and ends it as Ctrl-C does. Returns a text with the
    /// number of captured packets.
    fn run(&self) -> Result<String> {
        let (scratch, hosts) = (Scratch::new()?, Hosts::on(DEVICE)?);
        // No collector needs to run, because collectors do not answer datagrams of flows.
        let mut shell = start(&scratch, &self.command.replace("COLLECTOR", "127.0.0.1"))?;
        let said = || fs::read_to_string(scratch.file("stderr")).unwrap_or_default();
        let joined = await_for("both copies to join", LIMIT, || {
            ensure!(shell.try_wait()?.is_none(), "it ended: {}", said());
            Ok(said().contains(", on eth0: 2 copies").then_some(()))
        });
        joined.with_context(said)?;
        thread::sleep(GRACE);
        let offered = hosts.talk(EACH)?;
        if self.reads_blocks() {
            hosts.fill_blocks(2)?;
        }
        thread::sleep(GRACE);
        member::signal(command(&shell)?, "INT")?;
        let status = await_for("its end", LIMIT, || Ok(shell.try_wait()?)).with_context(said)?;
        let is_well = status.code() == Some(self.status());
        ensure!(is_well, "{status}: {}", said());
        for wrong in [
            "CAP_BPF beside",
            "rror:",
            "ALL packets",
            "Permission denied",
        ] {
            ensure!(!said().contains(wrong), "{}", said());
        }
        let taken = taken(&said())?;
        let is_all = match self.program() {
            // p0f's own filter selects only TCP.
            "p0f" => taken > 0,
            _ if self.reads_blocks() => taken > offered,
            _ => taken == offered,
        };
        ensure!(is_all, "{taken} of {offered} taken: {}", said());
        let counted = self.count(scratch.file("").as_path())?;
        let is_wrong = counted.is_some_and(|(found, of)| found != of.unwrap_or(offered));
        ensure!(
            !is_wrong,
            "{counted:?} of {offered} are in its output: {}",
            said()
        );
        Ok(format!(
            "{taken} of {offered} taken, in its output: {counted:?}"
        ))
    }

    /// The number of packets in the program's output; or, with the expected number, the number of
    /// conversations. `None` if the output has no such number.
    fn count(&self, directory: &Path) -> Result<Option<(usize, Option<usize>)>> {
        let stdout = fs::read_to_string(directory.join("stdout"))?;
        let read = |line: &str| answer(directory, line);
        let packets = match self.program() {
            "tcpdump" => Capture::read(&directory.join("all.pcap"))?.packets.len(),
            "dumpcap" => {
                let told = read("capinfos -rTc all.pcapng")?;
                told.split_whitespace().last().context("a count")?.parse()?
            }
            // tshark prints one line for each packet, after the copy's number.
            "tshark" => stdout
                .lines()
                .filter(|it| it.contains(" \u{2192} "))
                .count(),
            "pmacctd" => sum(stdout.lines(), 2),
            "argus" => {
                let told = read("for n in 0 1; do ra -n -r $n.argus -s proto pkts; done")?;
                let is_of_flow = |line: &&str| line.contains("tcp") || line.contains("udp");
                sum(told.lines().filter(is_of_flow), 1)
            }
            // p0f logs the TCP conversations over IPv4 and IPv6.
            "p0f" => {
                let told = read("cat p0f.0.log p0f.1.log")?;
                let begun = told.lines().filter(|it| it.contains("mod=syn|"));
                return Ok(Some((begun.count(), Some(2 * EACH))));
            }
            // tcpflow writes one file for each direction of a TCP conversation.
            "tcpflow" => {
                let files = read("ls 0 1")?;
                let files = files.lines().filter(|it| it.contains('-'));
                return Ok(Some((files.count(), Some(4 * EACH))));
            }
            _ => return Ok(None),
        };
        Ok(Some((packets, None)))
    }
}

/// The sum of a column, over the lines that have a number in this column.
fn sum<'a>(lines: impl Iterator<Item = &'a str>, column: usize) -> usize {
    let number = |line: &str| line.split_whitespace().nth(column)?.parse::<usize>().ok();
    lines.filter_map(number).sum()
}

fn answer(directory: &Path, line: &str) -> Result<String> {
    let mut command = Command::new("sh");
    let done = command.args(["-c", line]).current_dir(directory).output()?;
    ensure!(
        done.status.success(),
        "{line}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    Ok(String::from_utf8(done.stdout)?)
}
