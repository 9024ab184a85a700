//! Applications that wait for packets themselves, on any descriptor that libpcap returns. They
//! share a group like applications that wait in libpcap: from the start, after a death, and after a
//! pause. A handle that is never read takes no packets from handles that are read.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_netns::remains::leaves_nothing;
use fanpcap_netns::{DEVICE, Wire, ensure_each_once, ensure_flows_whole, on_wire};
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::{Capture, Member, Program, await_for};

/// The ways in which an application waits.
const WAYS: [&str; 8] = [
    "fileno-poll",
    "fileno-select",
    "fileno-epoll",
    "fileno-edge",
    "fd-poll",
    "fd-epoll",
    "fd-timer",
    "blind",
];

const FLOWS: u16 = 60;
const FRAMES: u64 = 1200;

/// The time after which each member has checked for packets, and so has noticed changes of the
/// group.
const NOTICED: Duration = Duration::from_millis(3000);

/// A member that does not read loses its share within this time.
const SILENT: Duration = Duration::from_secs(18);

/// The time after which every frame must be in one of the files.
const ARRIVED: Duration = Duration::from_secs(10);

/// Two copies that wait in the same way, in a separate group.
struct Pair {
    name: String,
    files: Vec<PathBuf>,
    members: Vec<Member>,
}

impl Pair {
    fn start(wire: &Wire, program: &Path, group: u16, engine: &str, how: &[&str]) -> Result<Self> {
        let name = format!("{} on {engine}", how.join(" "));
        let mut pair = Self {
            files: Vec::new(),
            members: Vec::new(),
            name,
        };
        for copy in 0..2 {
            let file = wire.scratch.file(&format!("{group}.{copy}.pcap"));
            let program = Program::new(program, "ready")?.arg(DEVICE).arg(&file);
            let program = program.args(how).set("PCAP_GROUP", group.to_string());
            let program = program.set("PCAP_DRIVER", engine);
            let member = program.start(&wire.scratch);
            pair.members
                .push(member.with_context(|| pair.name.clone())?);
            pair.files.push(file);
        }
        Ok(pair)
    }

    fn captures(&self) -> Vec<Capture> {
        let files = self.files.iter();
        files.map(|file| Capture::read_so_far(file)).collect()
    }

    /// Waits until both copies together have `frames` frames. Returns the number of frames of each
    /// copy.
    fn await_frames(&self, frames: usize) -> Result<Vec<usize>> {
        let counts = || -> Vec<usize> {
            let files = self.files.iter();
            files.map(|file| Capture::count_so_far(file)).collect()
        };
        let has_all = || Ok((counts().iter().sum::<usize>() >= frames).then_some(()));
        let arrived = await_for("the frames", ARRIVED, has_all);
        arrived.with_context(|| format!("{}: {:?} of {frames}", self.name, counts()))?;
        Ok(counts())
    }

    /// Checks that each frame and each flow reached exactly one copy.
    fn check(&self, frames: &[Frame]) -> Result<Vec<usize>> {
        let counts = self.await_frames(frames.len())?;
        ensure_each_once(&self.captures(), frames).with_context(|| self.name.clone())?;
        Ok(counts)
    }
}

/// The pairs of all ways on both engines, each pair in a separate group.
fn pairs(wire: &Wire, more: &[&str], ways: &[&str]) -> Result<Vec<Pair>> {
    let program = wire.compile("waits")?;
    let mut pairs = Vec::new();
    for engine in ["tpacket", "xdp"] {
        for way in ways {
            let how: Vec<&str> = [*way].into_iter().chain(more.iter().copied()).collect();
            let group = 7 + u16::try_from(pairs.len())?;
            pairs.push(Pair::start(wire, &program, group, engine, &how)?);
        }
    }
    thread::sleep(NOTICED);
    Ok(pairs)
}

/// `count` frames with the numbers from `from` on. All calls use the same flows.
fn frames(from: u64, count: u64) -> Result<Vec<Frame>> {
    traffic::frames(1, &traffic::flows(1, FLOWS), from..from + count)
}

/// Runs a test on a wire and checks that the XDP engine leaves nothing behind.
fn on_clean_wire(test: impl FnOnce(&Wire) -> Result<()> + Send) -> Result<()> {
    on_wire(1, |wire| leaves_nothing(|| test(wire)))
}

#[test]
#[ignore = "needs root: run by make test"]
fn whoever_waits_by_itself_has_its_share_and_that_of_one_that_is_killed() -> Result<()> {
    on_clean_wire(|wire| {
        let mut pairs = pairs(wire, &[], &WAYS)?;
        let first = frames(0, FRAMES)?;
        wire.send_as_tap(&first)?;
        for pair in &pairs {
            let counts = pair.check(&first)?;
            let least = counts.iter().min().copied().unwrap_or(0);
            ensure!(least * 4 > first.len(), "{}: {counts:?}", pair.name);
            ensure_flows_whole(&pair.captures()).with_context(|| pair.name.clone())?;
        }
        for pair in &mut pairs {
            drop(pair.members.remove(0));
        }
        // The test does not pause before it sends. A copy that waits only on its descriptor must be
        // woken because of the other copy's death.
        let second = frames(FRAMES, FRAMES)?;
        wire.send_as_tap(&second)?;
        let all: Vec<Frame> = first.iter().chain(&second).cloned().collect();
        for pair in &pairs {
            pair.check(&all)?;
        }
        thread::sleep(NOTICED);
        let third = frames(2 * FRAMES, FRAMES)?;
        wire.send_as_tap(&third)?;
        let all: Vec<Frame> = all.iter().chain(&third).cloned().collect();
        pairs.iter().try_for_each(|pair| pair.check(&all).map(drop))
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn whoever_waits_by_itself_and_is_stopped_gets_its_share_back() -> Result<()> {
    on_clean_wire(|wire| {
        let pairs = pairs(wire, &[], &WAYS)?;
        let mut sent = frames(0, FRAMES)?;
        wire.send_as_tap(&sent)?;
        for pair in &pairs {
            pair.check(&sent)?;
            pair.members[0].signal("STOP")?;
        }
        let kept = frames(FRAMES, FRAMES)?;
        wire.send_as_tap(&kept)?;
        thread::sleep(SILENT);
        let before: Vec<usize> = stopped(&pairs);
        let others = frames(2 * FRAMES, FRAMES)?;
        wire.send_as_tap(&others)?;
        for pair in &pairs {
            pair.members[0].signal("CONT")?;
        }
        sent.extend(kept);
        sent.extend(others);
        for (pair, before) in pairs.iter().zip(before) {
            let counts = pair.check(&sent)?;
            // The stopped copy has only got packets that were in its ring when it lost its share,
            // and none that came later.
            let own = counts[0] - before;
            ensure!(own < sent.len() / 4, "{}: {own} of {counts:?}", pair.name);
        }
        thread::sleep(NOTICED);
        let before: Vec<usize> = stopped(&pairs);
        let last = frames(3 * FRAMES, FRAMES)?;
        wire.send_as_tap(&last)?;
        sent.extend(last);
        for (pair, before) in pairs.iter().zip(before) {
            let counts = pair.check(&sent)?;
            let own = counts[0] - before;
            ensure!(
                own * 4 > sent.len() / 4,
                "{}: the stopped copy got only {own} packets",
                pair.name
            );
        }
        Ok(())
    })
}

/// The number of frames of each pair's first copy, which is or was stopped.
fn stopped(pairs: &[Pair]) -> Vec<usize> {
    let files = pairs.iter().map(|pair| &pair.files[0]);
    files.map(|file| Capture::count_so_far(file)).collect()
}

/// Each application opens a first handle that it does not read, and then a second handle, which
/// must get all frames. Some frames may come while only unread handles exist.
fn the_second_handles_have_all(first: &str) -> Result<()> {
    on_clean_wire(|wire| {
        let pairs = pairs(wire, &[first], &["blind", "fd-poll", "fileno-epoll"])?;
        let sent = frames(0, FRAMES)?;
        wire.send_as_tap(&sent)?;
        pairs
            .iter()
            .try_for_each(|pair| pair.check(&sent).map(drop))
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_handle_that_is_never_read_takes_nothing_from_a_second_one() -> Result<()> {
    the_second_handles_have_all("unread")
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_handle_that_was_only_asked_for_its_descriptor_takes_nothing_either() -> Result<()> {
    the_second_handles_have_all("asked")
}
