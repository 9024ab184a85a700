//! The program `fanpcap poller` on the wire's end at which members capture.

mod dpdk;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use fanpcap_group::view::View;
use fanpcap_linux::process::netns;
use fanpcap_poll::message::{Question, Reply};
use fanpcap_poll::{Asking, place};
use fanpcap_snapshot::view;
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_testkit::{Member, Program, Scratch, library};

use crate::DEVICE;
pub use dpdk::{device, place};

/// A poller that runs as a process.
#[derive(Debug)]
pub struct Poller {
    process: Member,
    place: String,
}

/// What a poller has counted, from the summary that it prints at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Packets that came to the source, and how many of these the kernel dropped.
    pub received: u64,
    /// See `received`.
    pub dropped: u64,
    /// Packets for groups, and how many of these came into pools.
    pub offered: u64,
    /// See `offered`.
    pub produced: u64,
    /// Packets for which a pool had no room.
    pub without_room: u64,
    /// Packets that came between a group's beginning and its first member.
    pub before_members: u64,
    /// Packets that the groups' steering programs dropped.
    pub nowhere: u64,
}

/// Runs a command with a high priority.
const FIRST: &str = r#"chrt -f 1 true && exec chrt -f 1 "$@"; exec nice -n -19 "$@""#;

impl Poller {
    /// Starts a poller of [`DEVICE`] in the calling thread's network namespace, and waits until it
    /// serves. `engine` is `packet`, `afxdp` or `dpdk`.
    ///
    /// The poller has a real-time priority, or at least a high one. On a busy machine, its source
    /// would lose packets if the poller had to wait for the CPU: a ring of blocks has room for 128
    /// ms, and 4096 chunks for 40 ms at 100,000 packets a second.
    ///
    /// # Errors
    /// The command isn't staged (`make`), or the poller fails.
    pub fn start(engine: &str, scratch: &Scratch) -> Result<Self> {
        Self::start_with(engine, &[], scratch)
    }

    /// Like [`Poller::start`], with more options.
    ///
    /// # Errors
    /// As [`Poller::start`].
    pub fn start_with(engine: &str, options: &[&str], scratch: &Scratch) -> Result<Self> {
        Self::start_of(engine, DEVICE, options, scratch)
    }

    /// Like [`Poller::start_with`], for an interface.
    ///
    /// # Errors
    /// As [`Poller::start`].
    pub fn start_of(
        engine: &str,
        interface: &'static str,
        options: &[&str],
        scratch: &Scratch,
    ) -> Result<Self> {
        Self::start_at(dpdk::served(engine, interface), options, scratch)
    }

    /// Like [`Poller::start_with`], for an engine and a device, such as `packet:vb`.
    ///
    /// # Errors
    /// As [`Poller::start`].
    pub fn start_at(place: String, options: &[&str], scratch: &Scratch) -> Result<Self> {
        let command = library::library_dir()?.join("../bin/fanpcap");
        let program = Program::new("sh", "serving ")?.args(["-c", FIRST, "sh"]);
        let program = program.arg(command).args(["poller", &place]);
        let program = dpdk::prepared(program, &place, scratch)?.args(options);
        let place = dpdk::of_members(place);
        // If the test is killed, nothing else ends the poller.
        let program = program.ends_with_caller();
        Ok(Self {
            process: program.start(scratch)?,
            place,
        })
    }

    /// Starts a poller with these variables, and at the usual priority. `device` is the engine and
    /// the device with its options, such as `dpdk:net_af_packet0,iface=vb`.
    ///
    /// # Errors
    /// As [`Poller::start`].
    pub fn start_set(
        device: &str,
        options: &[&str],
        variables: &[(&str, String)],
        scratch: &Scratch,
    ) -> Result<Self> {
        let command = library::library_dir()?.join("../bin/fanpcap");
        let program = Program::new(command, "serving ")?.args(["poller", device]);
        let program = program.args(options).ends_with_caller();
        let set = |program: Program, (name, value): &(&str, String)| program.set(name, value);
        Ok(Self {
            process: variables.iter().fold(program, set).start(scratch)?,
            place: device.split(',').next().unwrap_or(device).to_owned(),
        })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends the poller a signal. `name` is the signal's name without SIG.
    ///
    /// # Errors
    /// The process is gone.
    pub fn signal(&self, name: &str) -> Result<()> {
        self.process.signal(name)
    }

    /// What the poller shows of a group of root's members.
    ///
    /// # Errors
    /// The poller does not reply, or has no such group.
    pub fn look(&self, group: u16) -> Result<View> {
        let groups = self.ask()?.groups()?;
        let found = groups.iter().find(|it| it.number == Some(group));
        found.map(view).context("the poller has no such group")
    }

    /// Gives a member another weight, as `fanpcap group --weigh` does; 0 drains it.
    ///
    /// # Errors
    /// The poller does not reply, or does not change the weight.
    pub fn weigh(&self, member: u64, weight: u16) -> Result<()> {
        let reply = self.ask()?.ask(Question::Weigh { member, weight })?;
        ensure!(reply == Reply::Done, "{reply:?}");
        Ok(())
    }

    fn ask(&self) -> Result<Asking> {
        let (engine, device) = self.place.split_once(':').context("no engine")?;
        let found = place::open(engine, device)?;
        Ok(Asking::connect(&found.directory, &found.name, LIMIT)?)
    }

    /// Kills the poller, as a crash does.
    ///
    /// # Errors
    /// The process is gone.
    pub fn kill(self) -> Result<()> {
        self.process.signal("KILL")?;
        self.process.wait().map(drop)
    }

    /// Ends the poller by SIGTERM. Checks that it leaves no files.
    ///
    /// # Errors
    /// The poller fails, or prints no summary of packets.
    pub fn end(self) -> Result<Summary> {
        self.process.signal("TERM")?;
        let ended = self.process.wait()?;
        ensure!(ended.status.success(), "{}", ended.said);
        // The number of the network namespace may be that of an earlier one, in which a poller of
        // another device or engine was killed.
        for path in paths(&self.place)? {
            ensure!(!path.exists(), "{} is left", path.display());
        }
        summary(&ended.said, &self.place).with_context(|| ended.said.clone())
    }
}

/// The socket and the lock file of a poller in the calling thread's network namespace. `place` is
/// an engine and a device, such as `packet:vb`.
///
/// # Errors
/// The errors of stat(2).
pub fn paths(place: &str) -> Result<[PathBuf; 2]> {
    let directory = format!("/run/fanpcap-pollers/netns-{}", netns::inode()?);
    let directory = PathBuf::from(directory);
    let lock = format!("{place}.lock");
    Ok([directory.join(place), directory.join(lock)])
}

fn summary(said: &str, place: &str) -> Result<Summary> {
    let mut summary = Summary::default();
    let queues = said.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(place)).then_some(words)
    });
    for mut words in queues {
        // The queue's number comes first.
        words.next().context("a queue")?;
        summary.received += words.next().context("received")?.parse::<u64>()?;
        summary.dropped += words.next().context("dropped")?.parse::<u64>()?;
    }
    let groups = format!("{place}, groups: ");
    let mut lines = said.lines();
    let Some(ledger) = lines.find_map(|line| line.strip_prefix(&groups)) else {
        return Ok(summary);
    };
    let find = |before: &str| {
        let number = ledger.split(before).nth(1)?.split(' ').next()?;
        number.parse::<u64>().ok()
    };
    let count = |before: &str| find(before).with_context(|| before.to_owned());
    summary.offered = count("offered ")?;
    summary.produced = count("in rings ")?;
    summary.without_room = count(" + dropped ")?;
    summary.before_members = find(" + no member ").unwrap_or(0);
    summary.nowhere = find(" + dropped by the steering program ").unwrap_or(0);
    let lost = summary.without_room + summary.before_members + summary.nowhere;
    let ends = summary.produced + lost;
    ensure!(ends == summary.offered, "{ends} of {}", summary.offered);
    Ok(summary)
}
