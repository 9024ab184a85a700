//! Applications from Debian, as user nobody, in groups of two at the program `fanpcap poller`.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fanpcap_netns::poller::Poller;
use fanpcap_netns::{DEVICE, Wire, on_wire};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::{Capture, Member, Program, needs};

/// Flows and how many packets of each a copy has got.
type Flows = BTreeMap<String, usize>;

/// An application.
struct Subject {
    name: &'static str,
    /// What it prints once it captures.
    ready: &'static str,
    /// Its command line; `@` stands for the path of its output, and `DEV` for the device.
    command: &'static str,
    /// Reads the flows from its output, while it runs.
    read: fn(&Path) -> Result<Flows>,
    /// Whether it prints how many packets pcap_stats() has counted.
    prints_counters: bool,
}

const SUBJECTS: [Subject; 3] = [
    Subject {
        name: "tcpdump",
        ready: "listening on",
        command: "tcpdump -n -U -B 16384 -i DEV -w @",
        read: of_savefile,
        prints_counters: true,
    },
    Subject {
        name: "dumpcap",
        ready: "File:",
        command: "dumpcap -q -P -i DEV -w @",
        read: of_savefile,
        prints_counters: true,
    },
    Subject {
        name: "ngrep",
        ready: "interface:",
        command: "stdbuf -oL ngrep -q -d DEV",
        read: of_lines,
        prints_counters: false,
    },
];

fn of_savefile(path: &Path) -> Result<Flows> {
    let flows = Capture::read_so_far(path).flows().into_iter();
    Ok(flows
        .map(|(flow, count)| (flow.to_string(), count))
        .collect())
}

/// Reads ngrep's lines, such as `U 192.0.2.1:40000 -> 192.0.2.2:80 #5`.
fn of_lines(path: &Path) -> Result<Flows> {
    let said = fs::read(path)?;
    let said = String::from_utf8_lossy(&said);
    let mut flows = Flows::new();
    for line in said
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [kind @ ("U" | "T"), from, "->", to, ..] = words[..] {
            let ends = if from < to { [from, to] } else { [to, from] };
            *flows.entry(format!("{kind} {ends:?}")).or_insert(0) += 1;
        }
    }
    Ok(flows)
}

/// Two copies of an application in a group.
struct Team {
    subject: &'static Subject,
    copies: Vec<(Member, PathBuf)>,
}

impl Team {
    fn start(wire: &Wire, engine: &str, group: u16, subject: &'static Subject) -> Result<Self> {
        let copy = |_| {
            let output = wire.scratch.new_file("output");
            File::create(&output)?;
            fs::set_permissions(&output, Permissions::from_mode(0o666))?;
            let device = format!("{engine}:{DEVICE}");
            let path = output.display().to_string();
            let words = subject.command.split(' ');
            let words = words.map(|word| word.replace('@', &path).replace("DEV", &device));
            let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
            let program = Program::new("setpriv", subject.ready)?.args(nobody);
            let program = program.arg("--no-new-privs").args(words);
            let member = program.group(group, "flow").start(&wire.scratch)?;
            let is_said = !subject.command.contains('@');
            let output = if is_said { member.output() } else { output };
            Ok((member, output))
        };
        let copies = (0..2).map(copy).collect::<Result<_>>();
        Ok(Self {
            subject,
            copies: copies.context(subject.name)?,
        })
    }

    fn flows(&self) -> Result<Vec<Flows>> {
        let all = self.copies.iter();
        all.map(|(_, output)| (self.subject.read)(output)).collect()
    }

    /// Waits until the copies together have so many packets. Returns the number of each.
    fn await_packets(&self, count: usize) -> Result<Vec<usize>> {
        let mut counts = Vec::new();
        let all = await_for("the packets", LIMIT, || {
            let flows = self.flows()?.into_iter();
            counts = flows.map(|it| it.into_values().sum()).collect();
            Ok((counts.iter().sum::<usize>() >= count).then_some(()))
        });
        all.with_context(|| format!("{}: {counts:?} of {count}", self.subject.name))?;
        Ok(counts)
    }

    /// Checks that the copies have got each packet of the frames `last`, which came after the
    /// packets `before`, and each flow at one copy.
    fn check(&self, before: &[Flows], count: usize) -> Result<()> {
        let name = self.subject.name;
        let mut last = self.flows()?;
        for (flows, before) in last.iter_mut().zip(before) {
            for (flow, count) in before {
                *flows.entry(flow.clone()).or_insert(0) -= count;
            }
            flows.retain(|_, count| *count > 0);
        }
        let both = last[0].keys().find(|flow| last[1].contains_key(*flow));
        ensure!(both.is_none(), "{name}: both copies have {both:?}");
        let got: usize = last.iter().flat_map(Flows::values).sum();
        ensure!(got == count, "{name}: {got} of {count} packets");
        ensure!(last.iter().all(|it| !it.is_empty()), "{name}: one has none");
        Ok(())
    }

    /// Ends the copies as a user does, and checks the counters that they print.
    fn finish(self, count: usize) -> Result<()> {
        let Subject {
            name,
            prints_counters,
            ..
        } = self.subject;
        let mut received = 0;
        for (member, _) in self.copies {
            member.signal("INT")?;
            let said = member.wait()?.said;
            received += received_of(&said).unwrap_or(0);
        }
        ensure!(
            !prints_counters || received == count,
            "{name}: {received} of {count} received"
        );
        Ok(())
    }
}

/// The number of received packets that an application prints at its end.
fn received_of(said: &str) -> Option<usize> {
    said.lines().find_map(|line| {
        let tcpdump = line.strip_suffix(" packets received by filter");
        // `Packets received/dropped on interface 'packet:vb': 100/0 (...)`
        let dumpcap = || {
            line.strip_prefix("Packets received/dropped ")?
                .split("': ")
                .nth(1)
        };
        let number = tcpdump.or_else(dumpcap)?;
        number.split('/').next()?.trim().parse().ok()
    })
}

/// Frames of new flows, until each copy has its share.
fn share(wire: &Wire, teams: &[Team]) -> Result<usize> {
    const EACH: u64 = 400;
    let flows = traffic::flows(9, 200);
    let mut sent = 0;
    await_for("a share for each copy", LIMIT, || {
        wire.send_as_tap(&traffic::frames(sent, &flows, sent..sent + EACH)?)?;
        sent += EACH;
        let mut have_some = true;
        for team in teams {
            let counts = team.await_packets(usize::try_from(sent)?)?;
            have_some &= counts.iter().all(|it| *it > 0);
        }
        Ok(have_some.then_some(usize::try_from(sent)?))
    })
}

fn copies_share(wire: &Wire, engine: &str) -> Result<()> {
    let poller = Poller::start_with(engine, &["--socket-group", "65534"], &wire.scratch)?;
    let teams = SUBJECTS.iter().zip(5..);
    let teams = teams.map(|(subject, group)| Team::start(wire, engine, group, subject));
    let teams = teams.collect::<Result<Vec<Team>>>()?;
    let first = share(wire, &teams)?;
    let before = teams.iter().map(Team::flows).collect::<Result<Vec<_>>>()?;
    let frames: Vec<Frame> = traffic::frames(1, &traffic::flows(1, 300), 0..6000)?;
    wire.send_as_tap(&frames)?;
    let all = first + frames.len();
    for (team, before) in teams.into_iter().zip(before) {
        team.await_packets(all)?;
        team.check(&before, frames.len())?;
        team.finish(all)?;
    }
    let summary = poller.end()?;
    let counts = [summary.received, summary.dropped, summary.produced];
    let all = all as u64;
    ensure!(counts == [all, 0, 3 * all], "{summary:?} of {all}");
    Ok(())
}

#[test]
#[ignore = "needs root: run by make test"]
fn applications_of_user_nobody_share_the_packets() -> Result<()> {
    if !needs::user_namespaces() {
        return Ok(());
    }
    let is_here = |it: &&Subject| Command::new(it.name).arg("-h").output().is_ok();
    if let Some(absent) = SUBJECTS.iter().find(|it| !is_here(it)) {
        println!("SKIP: no {} here", absent.name);
        return Ok(());
    }
    for engine in ["packet", "afxdp"] {
        on_wire(1, |wire| copies_share(wire, engine)).context(engine)?;
    }
    Ok(())
}
