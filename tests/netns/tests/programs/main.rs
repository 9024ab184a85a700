//! Unmodified applications from Debian share real traffic by PCAP_GROUP and PCAP_FANOUT: each gets
//! its share, and together they get every packet once. This test generates the table of
//! docs/programs.md.

mod readers;
mod table;

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::hosts::{DEVICE, Hosts};
use fanpcap_testkit::{Capture, FlowKey, Member, Program, Scratch, Transport};
use fanpcap_testkit::{conversation, member, netns};

use crate::readers::Flows;

/// A program of the matrix.
struct Subject {
    name: &'static str,
    /// Debian's package.
    package: &'static str,
    /// What it says once it captures; nothing: being in its group must do.
    ready: &'static str,
    /// Its command line; `@` stands for the path of its output.
    command: &'static str,
    /// What of the traffic it looks at.
    sees: Sees,
    /// What it tells of a conversation.
    tells: Tells,
    /// The conversations that it found, from its output after its end.
    read: fn(&Output) -> Result<Flows>,
    /// A command that tells its findings while it runs; its output stands in for the program's.
    ask: Option<&'static str>,
}

impl Subject {
    /// Why it can't be tried on this machine.
    fn hindrance(&self) -> Option<String> {
        let name = self.name;
        // argus looks for a machine's identifier first, unless -X comes before.
        let options: &[&str] = if name == "argus" {
            &["-X", "-h"]
        } else {
            &["-h"]
        };
        let Ok(help) = Command::new(name).args(options).output() else {
            return Some(format!("no {name} here"));
        };
        let help = [help.stdout, help.stderr].concat();
        let is_argus_5 = String::from_utf8_lossy(&help).contains("Argus Version 5");
        is_argus_5.then(|| "argus 5 does not end when told to, whatever its libpcap".to_owned())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sees {
    All,
    Tcp,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tells {
    /// That it was there.
    Conversations,
    /// How many packets it had, too.
    Packets,
}

/// What a program left.
struct Output {
    path: PathBuf,
    said: String,
}

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
        tells: Tells::Packets,
        read: readers::savefile,
        ask: None,
    },
    Subject {
        name: "dumpcap",
        package: "wireshark-common",
        ready: "File:",
        command: "dumpcap -q -P -i DEV -w @",
        sees: Sees::All,
        tells: Tells::Packets,
        read: readers::savefile,
        ask: None,
    },
    Subject {
        name: "tshark",
        package: "tshark",
        ready: "Capturing on",
        command: "tshark -q -F pcap -i DEV -w @",
        sees: Sees::All,
        tells: Tells::Packets,
        read: readers::savefile,
        ask: None,
    },
    Subject {
        name: "ngrep",
        package: "ngrep",
        ready: "output:",
        command: "stdbuf -oL ngrep -q -e -d DEV -O @",
        sees: Sees::All,
        tells: Tells::Packets,
        read: readers::savefile,
        ask: None,
    },
    Subject {
        name: "p0f",
        package: "p0f",
        ready: "Entered main event loop",
        command: "stdbuf -oL p0f -i DEV -o @",
        sees: Sees::Tcp,
        tells: Tells::Conversations,
        read: readers::p0f,
        ask: None,
    },
    Subject {
        name: "softflowd",
        package: "softflowd",
        ready: "Exporting flows",
        command: "softflowd -D -i DEV -n 127.0.0.1:9 -c @ -p @.pid",
        sees: Sees::All,
        tells: Tells::Packets,
        read: readers::softflowd,
        ask: Some("softflowctl -c @ dump-flows"),
    },
    Subject {
        name: "pmacctd",
        package: "pmacct",
        ready: "cache entries",
        command: "pmacctd -i DEV -c src_host,dst_host,src_port,dst_port,proto -P print -O csv -r 3600",
        sees: Sees::All,
        tells: Tells::Packets,
        read: readers::pmacctd,
        ask: None,
    },
    Subject {
        name: "argus",
        package: "argus-server",
        ready: "",
        command: "argus -X -e 1 -i DEV -w @",
        sees: Sees::All,
        tells: Tells::Packets,
        read: readers::argus,
        ask: None,
    },
    Subject {
        name: "tcpflow",
        package: "tcpflow",
        ready: "listening on",
        command: "tcpflow -i DEV -o @",
        sees: Sees::Tcp,
        tells: Tells::Conversations,
        read: readers::tcpflow,
        ask: None,
    },
];

/// No program tells when it has read all that it was given: a block timeout of a second, and some.
const GRACE: Duration = Duration::from_millis(1500);

#[test]
#[ignore = "needs root: run by make test"]
fn each_its_share_together_everything_once() -> Result<()> {
    netns::within_new(|| {
        let hosts = Hosts::new()?;
        let scratch = Scratch::new()?;
        let whole = Program::tcpdump(DEVICE, scratch.file("whole"))?.start(&scratch)?;
        let (here, absent): (Vec<_>, Vec<_>) = SUBJECTS
            .iter()
            .partition(|subject| subject.hindrance().is_none());
        let groups = here.iter().zip(1..);
        let started = groups.map(|(subject, group)| start(subject, group, &scratch));
        let started = started.collect::<Result<Vec<_>>>()?;
        let offered = hosts.talk(EACH)?;
        let whole = member::finish(vec![whole], offered)?;
        hosts.fill_blocks(COPIES)?;
        thread::sleep(GRACE);
        for (subject, copies) in here.iter().zip(started) {
            let found = copies
                .into_iter()
                .map(|copy| conversations((subject.read)(&copy.finish()?)));
            let found: Result<Vec<_>> = found.collect();
            let found = found.context(subject.name)?;
            let wanted = wanted(&whole[0], subject.sees);
            compare(&wanted, &found, subject.tells).context(subject.name)?;
        }
        for subject in &absent {
            println!("SKIP: {}", subject.hindrance().unwrap_or_default());
        }
        if absent.is_empty() {
            table::check(&SUBJECTS)
        } else {
            Ok(())
        }
    })
}

/// Starts the copies of a program in a group of their own.
fn start(subject: &Subject, group: u16, scratch: &Scratch) -> Result<Vec<Copy>> {
    let copies = (0..COPIES).map(|_| Copy::start(subject, group, scratch));
    let copies = copies.collect::<Result<_>>().context(subject.name)?;
    member::wait_for_members(group, COPIES).context(subject.name)?;
    Ok(copies)
}

fn wanted(whole: &Capture, sees: Sees) -> Flows {
    let seen = |flow: &FlowKey| sees == Sees::All || flow.transport() == Some(Transport::Tcp);
    let flows = whole.flows().into_iter();
    flows.filter(|(flow, _)| seen(flow)).collect()
}

/// Without what fills blocks.
fn conversations(flows: Result<Flows>) -> Result<Flows> {
    let held = |flow: &FlowKey| flow.has_port(conversation::PORT);
    flows.map(|flows| flows.into_iter().filter(|(flow, _)| held(flow)).collect())
}

fn compare(expected: &Flows, found: &[Flows], tells: Tells) -> Result<()> {
    ensure!(!expected.is_empty(), "no traffic");
    let mut together = Flows::new();
    for flows in found {
        ensure!(!flows.is_empty(), "one copy got nothing");
        for (flow, packets) in flows {
            let elsewhere = together.insert(*flow, *packets).is_some();
            ensure!(!elsewhere, "{flow} is at both copies");
        }
    }
    for (flow, packets) in expected {
        let told = together.remove(flow);
        let told = told.with_context(|| format!("nobody has {flow}"))?;
        let whole = tells == Tells::Conversations || told == *packets;
        ensure!(whole, "{told} packets of {packets} of {flow}");
    }
    let foreign = together.keys().next();
    ensure!(foreign.is_none(), "{foreign:?} was never sent");
    Ok(())
}

/// One running copy of a program.
struct Copy {
    member: Member,
    output: PathBuf,
    ask: Option<String>,
}

impl Copy {
    fn start(subject: &Subject, group: u16, scratch: &Scratch) -> Result<Self> {
        let output = scratch.new_file("output");
        let path = output.display().to_string();
        let fill = |text: &str| text.replace('@', &path).replace("DEV", DEVICE);
        let ready: &'static str = fill(subject.ready).leak();
        let command = fill(subject.command);
        let mut words = command.split(' ');
        let program = Program::new(words.next().unwrap_or_default(), ready)?.args(words);
        let member = program.group(group, "hash").start(scratch)?;
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
