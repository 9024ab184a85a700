//! Programs as Debian ships them share real traffic by PCAP_GROUP and PCAP_FANOUT alone: each its share,
//! together everything once. The table of docs/programs.md is what this test found.

mod readers;
mod table;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::hosts::{DEVICE, Hosts};
use fanpcap_testkit::{Capture, FlowKey, Member, Program, Scratch, Transport};
use fanpcap_testkit::{member, netns};

/// A program of the matrix.
struct Subject {
    name: &'static str,
    /// Debian's package.
    package: &'static str,
    /// What it says once it captures.
    ready: &'static str,
    /// Its command line; `@` stands for the path of its output.
    command: &'static str,
    /// What of the traffic it looks at.
    sees: Sees,
    /// The conversations that it found, from its output after its end.
    read: fn(&Output) -> Result<BTreeSet<FlowKey>>,
    /// A command that tells its findings while it runs; its output stands in for the program's.
    ask: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sees {
    All,
    Tcp,
}

/// What a program left.
struct Output {
    path: PathBuf,
    said: String,
}

const GROUP: u16 = 7;
const COPIES: usize = 2;
/// Conversations of each kind: TCP and UDP, over IPv4 and IPv6.
const EACH: usize = 16;

const SUBJECTS: [Subject; 9] = [
    Subject {
        name: "tcpdump",
        package: "tcpdump",
        ready: "listening on",
        command: "tcpdump -n -U -Z root -i DEV -w @",
        sees: Sees::All,
        read: readers::savefile,
        ask: None,
    },
    Subject {
        name: "dumpcap",
        package: "wireshark-common",
        ready: "File:",
        command: "dumpcap -q -P -i DEV -w @",
        sees: Sees::All,
        read: readers::savefile,
        ask: None,
    },
    Subject {
        name: "tshark",
        package: "tshark",
        ready: "Capture started",
        command: "tshark -q -F pcap -i DEV -w @",
        sees: Sees::All,
        read: readers::savefile,
        ask: None,
    },
    Subject {
        name: "ngrep",
        package: "ngrep",
        ready: "output:",
        command: "stdbuf -oL ngrep -q -e -d DEV -O @",
        sees: Sees::All,
        read: readers::savefile,
        ask: None,
    },
    Subject {
        name: "p0f",
        package: "p0f",
        ready: "Entered main event loop",
        command: "stdbuf -oL p0f -i DEV -o @",
        sees: Sees::Tcp,
        read: readers::p0f,
        ask: None,
    },
    Subject {
        name: "softflowd",
        package: "softflowd",
        ready: "Exporting flows",
        command: "softflowd -D -i DEV -n 127.0.0.1:9 -c @ -p @.pid",
        sees: Sees::All,
        read: readers::softflowd,
        ask: Some("softflowctl -c @ dump-flows"),
    },
    Subject {
        name: "pmacctd",
        package: "pmacct",
        ready: "cache entries",
        command: "pmacctd -i DEV -c src_host,dst_host,src_port,dst_port,proto -P print -O csv -r 3600",
        sees: Sees::All,
        read: readers::pmacctd,
        ask: None,
    },
    Subject {
        name: "argus",
        package: "argus-server",
        ready: "interface DEV is up",
        command: "argus -i DEV -w @",
        sees: Sees::All,
        read: readers::argus,
        ask: None,
    },
    Subject {
        name: "tcpflow",
        package: "tcpflow",
        ready: "listening on",
        command: "tcpflow -i DEV -o @",
        sees: Sees::Tcp,
        read: readers::tcpflow,
        ask: None,
    },
];

#[test]
#[ignore = "needs root: run by make test"]
fn each_its_share_together_everything_once() -> Result<()> {
    let rows = netns::within_new(|| {
        let hosts = Hosts::new()?;
        let rows = SUBJECTS.iter().map(|subject| row(subject, &hosts));
        rows.collect::<Result<Vec<_>>>()
    })?;
    table::check(&rows)
}

/// Runs two copies of a program beside a plain tcpdump that sees all, and compares.
fn row(subject: &Subject, hosts: &Hosts) -> Result<table::Row> {
    let scratch = Scratch::new()?;
    let whole = Program::tcpdump(DEVICE, scratch.file("whole"))?.start(&scratch)?;
    let copies: Vec<Copy> = (0..COPIES)
        .map(|_| Copy::start(subject, &scratch))
        .collect::<Result<_>>()
        .with_context(|| subject.name)?;
    member::wait_for_members(GROUP, COPIES)?;
    let offered = hosts.talk(EACH)?;
    let expected = wanted(&member::finish(vec![whole], offered)?[0], subject.sees);
    let found: Vec<BTreeSet<FlowKey>> = copies
        .into_iter()
        .map(|copy| (subject.read)(&copy.finish()?))
        .collect::<Result<_>>()
        .with_context(|| subject.name)?;
    compare(subject, &expected, &found)?;
    Ok(table::Row {
        program: subject.name,
        package: subject.package,
        sees: subject.sees,
        expected: expected.len(),
    })
}

fn wanted(whole: &Capture, sees: Sees) -> BTreeSet<FlowKey> {
    let flows = whole.flows().into_keys();
    flows
        .filter(|flow| sees == Sees::All || flow.transport() == Some(Transport::Tcp))
        .collect()
}

fn compare(
    subject: &Subject,
    expected: &BTreeSet<FlowKey>,
    found: &[BTreeSet<FlowKey>],
) -> Result<()> {
    let name = subject.name;
    ensure!(!expected.is_empty(), "{name}: no traffic");
    let mut together = BTreeSet::new();
    for flows in found {
        ensure!(!flows.is_empty(), "{name}: one copy got nothing");
        for flow in flows {
            ensure!(together.insert(*flow), "{name}: {flow} is at both copies");
        }
    }
    let missing = expected.difference(&together).next();
    ensure!(missing.is_none(), "{name}: nobody has {missing:?}");
    let foreign = together.difference(expected).next();
    ensure!(foreign.is_none(), "{name}: {foreign:?} was never sent");
    Ok(())
}

/// One running copy of a program.
struct Copy {
    member: Member,
    output: PathBuf,
    ask: Option<String>,
}

impl Copy {
    fn start(subject: &Subject, scratch: &Scratch) -> Result<Self> {
        let output = scratch.new_file("output");
        let path = output.display().to_string();
        let fill = |text: &str| text.replace('@', &path).replace("DEV", DEVICE);
        let ready: &'static str = fill(subject.ready).leak();
        let command = fill(subject.command);
        let mut words = command.split(' ');
        let program = Program::new(words.next().unwrap_or_default(), ready)?.args(words);
        let member = program.group(GROUP, "hash").start(scratch)?;
        Ok(Self {
            member,
            output,
            ask: subject.ask.map(fill),
        })
    }

    /// Ends it as a user would and collects what it left.
    fn finish(self) -> Result<Output> {
        let asked = self.ask.as_deref().map(answer).transpose()?;
        self.member.signal("INT")?;
        // Some end with the signal itself.
        let ended = self.member.wait()?;
        Ok(Output {
            path: self.output,
            said: asked.unwrap_or(ended.said),
        })
    }
}

/// The output of a command.
fn answer(command: &str) -> Result<String> {
    let mut words = command.split(' ');
    let program = words.next().unwrap_or_default();
    let done = Command::new(program)
        .args(words)
        .output()
        .with_context(|| command.to_owned())?;
    ensure!(
        done.status.success(),
        "{command}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
