//! Copies of unmodified applications from Debian share real traffic by PCAP_GROUP and PCAP_FANOUT.
//! Each copy in a group gets a share, and together the group's copies get every packet once. This
//! test generates the table of docs/programs.md.

mod readers;
mod subjects;
mod table;

use std::iter;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_group::view::{Place, State};
use fanpcap_netns::poller::{self, Poller};
use fanpcap_netns::remains::leaves_nothing;
use fanpcap_snapshot::Source;
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::hosts::{DEVICE, Hosts, PEER_DEVICE};
use fanpcap_testkit::{Capture, FlowKey, Member, Program, Scratch, Transport};
use fanpcap_testkit::{conversation, dpdk, member, netns, veth};

use crate::readers::Flows;
use crate::subjects::{SUBJECTS, Sees, Subject, Tells};

/// The output of a program that has ended.
struct Output {
    path: PathBuf,
    said: String,
}

/// A way in which copies share the traffic.
struct Way {
    copies: usize,
    /// The group's mode; `None` for the default.
    mode: Option<&'static str>,
    engine: Engine,
    /// The first copy is killed before the traffic begins.
    is_first_killed: bool,
}

impl Way {
    /// The device that the copies open.
    fn device(&self) -> &'static str {
        match self.engine {
            Engine::Poller(engine) => poller::device(engine, DEVICE),
            Engine::Socket | Engine::Xdp | Engine::InsteadOfXdp => DEVICE,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Engine {
    Socket,
    /// The applications request the XDP engine.
    Xdp,
    /// The applications request the XDP engine, but it can't serve.
    InsteadOfXdp,
    /// The packets come from a poller of this engine.
    Poller(&'static str),
}

/// The rules of the poller. Each program has a group of its own.
const POLICY: &str = "[user root]\ngroups = 32\n";

/// The programs of one group, with an entry for each copy.
type Team = Vec<&'static Subject>;

/// Number of conversations of each kind. The kinds are TCP and UDP, over IPv4 and IPv6.
const EACH: usize = 16;

/// The test waits for this time, so that the programs can read all their packets. No program
/// reports when it has read them. The time is half a second longer than the timeout of a ring's
/// block, which is a second.
const GRACE: Duration = Duration::from_millis(1500);

#[test]
#[ignore = "needs root: run by make test"]
fn each_its_share_together_everything_once() -> Result<()> {
    let way = Way {
        copies: 2,
        mode: Some("hash"),
        engine: Engine::Socket,
        is_first_killed: false,
    };
    let absent = all_share(&way, |_| true)?;
    if absent.is_empty() {
        return table::check(&SUBJECTS);
    }
    for hindrance in absent {
        println!("SKIP: {hindrance}");
    }
    Ok(())
}

#[test]
#[ignore = "needs root: run by make test"]
fn two_copies_under_the_default_mode() -> Result<()> {
    all_share(&by_default(false), |_| true).map(drop)
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_second_of_two_copies_finds_everything_when_the_first_is_killed() -> Result<()> {
    all_share(&by_default(true), |_| true).map(drop)
}

#[test]
#[ignore = "needs root: run by make test"]
fn two_copies_on_xdp() -> Result<()> {
    all_share(&on_xdp(2), |subject| subject.keeps_bpf).map(drop)
}

#[test]
#[ignore = "needs root: run by make test"]
fn four_copies_on_xdp() -> Result<()> {
    all_share(&on_xdp(4), |subject| subject.keeps_bpf).map(drop)
}

#[test]
#[ignore = "needs root: run by make test"]
fn two_copies_at_a_poller() -> Result<()> {
    all_share(&at_poller(2), |_| true).map(drop)
}

#[test]
#[ignore = "needs root: run by make test"]
fn four_copies_at_a_poller() -> Result<()> {
    all_share(&at_poller(4), |_| true).map(drop)
}

/// The driver of this virtual device takes what the host sends, too. The device is no network
/// interface, and argus waits until there is one of its name.
#[test]
#[ignore = "needs root: run by make test"]
fn two_and_four_copies_on_dpdk() -> Result<()> {
    if !dpdk::is_here() {
        return Ok(());
    }
    [2, 4].into_iter().try_for_each(|copies| {
        let way = Way {
            engine: Engine::Poller("dpdk"),
            ..on_xdp(copies)
        };
        all_share(&way, |subject| subject.name != "argus").map(drop)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn programs_without_cap_bpf_share_by_packet_sockets_instead() -> Result<()> {
    let way = Way {
        mode: Some("hash"),
        engine: Engine::InsteadOfXdp,
        ..on_xdp(2)
    };
    all_share(&way, |subject| !subject.keeps_bpf).map(drop)
}

#[test]
#[ignore = "needs root: run by make test"]
fn different_programs_in_one_group_on_xdp() -> Result<()> {
    // Only these three programs, because the library warns that the group contains another program.
    // The other programs treat this warning as an error.
    let names = ["tcpdump", "ngrep", "argus"];
    let is_named = |subject: &&Subject| names.contains(&subject.name);
    let present = |subject: &&Subject| subject.hindrance().is_none();
    let team = SUBJECTS.iter().filter(is_named).filter(present).collect();
    share(&on_xdp(1), &[team])
}

/// Two copies on packet sockets, with no mode set.
fn by_default(is_first_killed: bool) -> Way {
    Way {
        copies: 2,
        mode: None,
        engine: Engine::Socket,
        is_first_killed,
    }
}

fn on_xdp(copies: usize) -> Way {
    Way {
        copies,
        mode: Some("flow"),
        engine: Engine::Xdp,
        is_first_killed: false,
    }
}

fn at_poller(copies: usize) -> Way {
    Way {
        engine: Engine::Poller("packet"),
        ..on_xdp(copies)
    }
}

/// Runs each program that `takes_part`, in a separate group. Returns the reasons why some of these
/// programs can't be tried on this machine.
fn all_share(way: &Way, takes_part: impl Fn(&Subject) -> bool) -> Result<Vec<String>> {
    let (here, absent): (Vec<_>, Vec<_>) = SUBJECTS
        .iter()
        .filter(|subject| takes_part(subject))
        .partition(|subject| subject.hindrance().is_none());
    let team = |subject| iter::repeat_n(subject, way.copies).collect();
    let teams: Vec<Team> = here.into_iter().map(team).collect();
    share(way, &teams)?;
    let hindrances = absent.into_iter().filter_map(Subject::hindrance);
    Ok(hindrances.collect())
}

/// All teams capture the same conversations at the same time.
fn share(way: &Way, teams: &[Team]) -> Result<()> {
    netns::within_new(|| {
        let hosts = Hosts::new()?;
        match way.engine {
            Engine::Xdp => leaves_nothing(|| share_between(&hosts, way, teams)),
            Engine::Socket | Engine::InsteadOfXdp | Engine::Poller(_) => {
                share_between(&hosts, way, teams)
            }
        }
    })
}

fn share_between(hosts: &Hosts, way: &Way, teams: &[Team]) -> Result<()> {
    let scratch = Scratch::new()?;
    // This capture is at the wire's other end, where no XDP program gets the frames first.
    let whole = Program::tcpdump(PEER_DEVICE, scratch.file("whole"))?;
    let whole = hosts.on_peer(|| whole.start(&scratch))?;
    let poller = poller(way, &scratch)?;
    let started = teams.iter().zip(1..);
    let started = started.map(|(team, group)| start(team, group, way, (&scratch, poller.as_ref())));
    let mut started = started.collect::<Result<Vec<_>>>()?;
    // If an application polls by itself, its member does not report when it has its share. So the
    // test waits for a fixed time.
    thread::sleep(GRACE);
    if way.is_first_killed {
        for copies in &mut started {
            // Dropping a copy kills it and its children. The children of pmacctd hold its
            // descriptors, so without their end the copy would stay in the group.
            drop(copies.remove(0));
        }
        thread::sleep(GRACE);
    }
    ensure!(veth::has_xdp(DEVICE)? == (way.engine == Engine::Xdp));
    let offered = hosts.talk(EACH)?;
    let whole = member::finish(vec![whole], offered)?;
    // The packets of a pool wait for no full block.
    if !matches!(way.engine, Engine::Xdp | Engine::Poller(_)) {
        hosts.fill_blocks(way.copies)?;
    }
    await_read()?;
    thread::sleep(GRACE);
    for (team, copies) in teams.iter().zip(started) {
        let (found, tells) = found(team, copies)?;
        let wanted = wanted(&whole[0], team[0].sees);
        compare(&wanted, &found, tells).context(team[0].name)?;
    }
    poller.map_or(Ok(()), |poller| poller.end().map(drop))
}

/// The poller from which the packets come, if one does.
fn poller(way: &Way, scratch: &Scratch) -> Result<Option<Poller>> {
    let Engine::Poller(engine) = way.engine else {
        return Ok(None);
    };
    let policy = scratch.write("policy", POLICY)?.display().to_string();
    let options = ["--policy", &policy];
    Poller::start_of(engine, DEVICE, &options, scratch).map(Some)
}

/// Waits until the members in the calling thread's namespace have read all their packets, according
/// to their counters. Some members never read all packets, so the function gives up after 10
/// seconds.
fn await_read() -> Result<()> {
    const LONGEST: Duration = Duration::from_secs(10);
    let mut source = Source::new(None)?;
    let mut last = None;
    let _ = await_for("all to be read", LONGEST, || {
        // Members update their counters ten times a second, so after this time a change is visible.
        thread::sleep(Duration::from_millis(200));
        let sockets = source.take()?.sockets.into_iter();
        let counts = sockets.filter_map(|it| it.counts);
        let counts = counts.map(|it| (it.received, it.dropped, it.taken));
        let counts = counts.collect::<Vec<_>>();
        let is_read = |&(received, dropped, taken): &(u64, u64, Option<u64>)| {
            taken.is_none_or(|taken| taken + dropped >= received)
        };
        let is_over = counts.iter().all(is_read) && last.as_ref() == Some(&counts);
        last = Some(counts);
        Ok(is_over.then_some(()))
    });
    Ok(())
}

/// Starts the programs of a group.
fn start(
    team: &Team,
    group: u16,
    way: &Way,
    (scratch, poller): (&Scratch, Option<&Poller>),
) -> Result<Vec<Copy>> {
    let copies = team.iter().map(|subject| {
        let copy = Copy::start(subject, group, way, scratch);
        copy.context(subject.name)
    });
    let copies = copies.collect::<Result<_>>()?;
    let awaited = match poller {
        Some(poller) => wait_for_polled(poller, group, team.len()),
        None => member::wait_for_members(group, team.len()),
    };
    awaited.context(team[0].name)?;
    Ok(copies)
}

/// Waits until a group of the poller has this number of members.
fn wait_for_polled(poller: &Poller, group: u16, members: usize) -> Result<()> {
    let is_member = |it: &&Place| matches!(it.state, State::Newcomer | State::Live);
    await_for("members at the poller", LIMIT, || {
        // Before its first member, there is no group.
        let places = poller.look(group).map(|it| it.places).unwrap_or_default();
        Ok((places.iter().filter(is_member).count() == members).then_some(()))
    })
}

/// Ends the programs of a group. Returns what each program found, and what all of them can report.
fn found(team: &Team, copies: Vec<Copy>) -> Result<(Vec<Flows>, Tells)> {
    let found = team.iter().zip(copies).map(|(subject, copy)| {
        let flows = (subject.read)(&copy.finish()?).map(conversations);
        flows.context(subject.name)
    });
    let tells = match team.iter().all(|subject| subject.tells == Tells::Packets) {
        true => Tells::Packets,
        false => Tells::Conversations,
    };
    Ok((found.collect::<Result<_>>()?, tells))
}

fn wanted(whole: &Capture, sees: Sees) -> Flows {
    let seen = |flow: &FlowKey| sees == Sees::All || flow.transport() == Some(Transport::Tcp);
    let flows = whole.flows().into_iter();
    conversations(flows.filter(|(flow, _)| seen(flow)).collect())
}

/// Keeps only the conversations. Removes the traffic that only fills blocks of the rings, and that
/// for neighbours: a driver of DPDK sets the interface's address, and the kernel forgets them.
fn conversations(flows: Flows) -> Flows {
    let held = |flow: &FlowKey| flow.has_port(conversation::PORT);
    flows.into_iter().filter(|(flow, _)| held(flow)).collect()
}

fn compare(expected: &Flows, found: &[Flows], tells: Tells) -> Result<()> {
    ensure!(!expected.is_empty(), "no traffic");
    let mut together = Flows::new();
    for flows in found {
        ensure!(!flows.is_empty(), "one copy found no conversation");
        for (flow, packets) in flows {
            let elsewhere = together.insert(*flow, *packets).is_some();
            ensure!(!elsewhere, "both copies found {flow}");
        }
    }
    for (flow, packets) in expected {
        let told = together.remove(flow);
        let told = told.with_context(|| format!("nobody has {flow}"))?;
        let whole = tells == Tells::Conversations || told == *packets;
        ensure!(whole, "{flow}: {told} of {packets} packets were found");
    }
    let foreign = together.keys().next();
    ensure!(
        foreign.is_none(),
        "a copy found {foreign:?}, which was never sent"
    );
    Ok(())
}

/// One running copy of a program.
struct Copy {
    member: Member,
    output: PathBuf,
    ask: Option<String>,
}

impl Copy {
    fn start(subject: &Subject, group: u16, way: &Way, scratch: &Scratch) -> Result<Self> {
        let output = scratch.new_file("output");
        let path = output.display().to_string();
        let device = way.device();
        let fill = |text: &str| text.replace('@', &path).replace("DEV", device);
        let ready: &'static str = fill(subject.ready).leak();
        let command = fill(subject.command);
        let mut words = command.split(' ');
        let program = Program::new(words.next().unwrap_or_default(), ready)?.args(words);
        let program = program.set("PCAP_GROUP", group.to_string());
        let program = match way.mode {
            Some(mode) => program.set("PCAP_FANOUT", mode),
            None => program,
        };
        let program = match way.engine {
            Engine::Socket => program,
            Engine::Xdp | Engine::InsteadOfXdp => program.set("PCAP_DRIVER", "xdp"),
            // A user gets half of the poller's memory, which all these pools share.
            Engine::Poller(engine) => program.set("PCAP_DRIVER", engine).set("PCAP_RING", "8M"),
        };
        let member = program.start(scratch)?;
        Ok(Self {
            member,
            output,
            ask: subject.ask.map(fill),
        })
    }

    /// Ends the program as a user would and collects its output.
    fn finish(self) -> Result<Output> {
        let asked = self.ask.as_deref().map(answer).transpose()?;
        self.member.signal("INT")?;
        // Do not check the exit status, because some programs end by the signal itself.
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
