//! A measure of members that join and are killed under load. It shows which flows move, how many
//! packets are lost, and how soon other members get the flows of the killed member.

mod story;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, ensure};
use fanpcap_gen::{Choice, Description, Pace, Plan, Sender, Until};
use fanpcap_linux::process::child;
use fanpcap_testbed::Member;

use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::libraries::Side;
use crate::pause::pause;
use crate::reader;
use story::{FLOWS, Story, moved};

const GROUP: u16 = 61;
/// The rate of the frames. The measures' names contain it too.
const RATE: &str = "200kpps";
/// Number of frames of each flow in a phase.
const ROUNDS: u64 = 6;
/// A pause that is long enough for a newcomer to get its share, and for sent packets to arrive.
const SETTLED: Duration = Duration::from_millis(300);

const READ_WITHIN: Duration = Duration::from_secs(10);

/// The source text. It is part of the executable, because an installed command has no source tree.
const SOURCE: &str = include_str!("../../c/members.c");

/// Runs a group of this many members. One more member joins it, and then the first member is
/// killed.
pub(super) fn run(members: usize, bench: &Bench, mode: &str) -> Result<Sample> {
    let mut program = bench.scratch.file("members");
    if !program.exists() {
        program = reader::compile(&bench.scratch, "members", SOURCE)?;
    }
    let mut group = Group::default();
    for _ in 0..members {
        group.start(bench, &program, mode)?;
    }
    pause(SETTLED)?;
    let traffic = Traffic::start(bench)?;
    let alone = group.phase(bench)?;
    let opened_us = group.start(bench, &program, mode)?;
    let joined = group.phase(bench)?;
    let killed_us = group.kill_first()?;
    let after = group.phase(bench)?;
    let frames = traffic.stop()?;
    pause(SETTLED)?;
    group.stop()?;

    let story = Story::read(group.files.iter().map(PathBuf::as_path))?;
    let [alone, joined, after] = [alone, joined, after].map(|it| story.owners(&it));
    let served = story.served_after(&joined, 0, killed_us);
    let served = served.context("no member has the flows of the killed member")?;
    Ok(Sample::from([
        (Figure::JoinMoved, moved(&alone, &joined, |_| true)),
        (Figure::DeathMoved, moved(&joined, &after, |_| true)),
        (Figure::SurvivorsMoved, moved(&joined, &after, |it| it != 0)),
        (Figure::Lost, story.lost(frames)? as f64),
        (Figure::ServedMs, served as f64 / 1e3),
        (Figure::OpenUs, opened_us as f64),
    ]))
}

/// Members that record the packets that they get.
#[derive(Debug, Default)]
struct Group {
    members: Vec<Member>,
    files: Vec<PathBuf>,
}

impl Group {
    /// Starts a member. Returns how many microseconds it took to open the handle.
    fn start(&mut self, bench: &Bench, program: &Path, mode: &str) -> Result<u64> {
        let file = bench.scratch.new_file("records");
        let member = bench
            .libraries()
            .program(Side::Ours, program, "ready", None)
            .args([bench.wire.far().as_ref(), file.as_os_str()])
            .group(GROUP, mode);
        let member = bench.wire.at_far(|| member.start(&bench.scratch))?;
        let said = member.said()?;
        let opened = said
            .split_once("opened ")
            .and_then(|(_, it)| it.split_once(" us"));
        let opened = opened.and_then(|(us, _)| us.parse().ok());
        self.members.push(member);
        self.files.push(file);
        opened.with_context(|| said.clone())
    }

    /// Waits until each flow has had [`ROUNDS`] frames. Meanwhile no member joins or ends. Returns
    /// the begin and the end of this phase in microseconds since 1970. Also waits until the members
    /// have read the phase's packets, because later another member could read them from a dead
    /// member's ring.
    fn phase(&self, bench: &Bench) -> Result<Range<u64>> {
        pause(SETTLED)?;
        let (from, before) = (now_us(), bench.arrived()?.received);
        while bench.arrived()?.received < before + ROUNDS * u64::from(FLOWS) {
            pause(Duration::from_millis(5))?;
        }
        let until = now_us();
        let ended = self.files.len() - self.members.len();
        let end = Instant::now() + READ_WITHIN;
        for file in self.files.iter().skip(ended) {
            while story::last_arrived_us(file)? < until {
                ensure!(Instant::now() < end, "a member does not read");
                pause(Duration::from_millis(5))?;
            }
        }
        Ok(from..until)
    }

    /// Kills the first member. Returns the time of the kill in microseconds since 1970.
    fn kill_first(&mut self) -> Result<u64> {
        let first = self.members.remove(0);
        let at = now_us();
        child::signal(first.pid(), child::SIGKILL)?;
        first.wait()?;
        Ok(at)
    }

    fn stop(&mut self) -> Result<()> {
        for member in self.members.drain(..) {
            child::signal(member.pid(), child::SIGTERM)?;
            let ended = member.wait()?;
            ensure!(ended.status.success(), "{}", ended.said);
        }
        Ok(())
    }
}

/// A thread that sends numbered frames, one of each flow in turn.
struct Traffic {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<Result<u64>>,
}

impl Traffic {
    fn start(bench: &Bench) -> Result<Self> {
        let description = Description {
            flows: FLOWS,
            ..Description::default()
        };
        let plan = Plan {
            until: Until::Stopped,
            pace: Pace::Even(RATE.parse().map_err(|why| anyhow!("{RATE}: {why}"))?),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&stop);
        let (device, cpu) = (bench.wire.near(), bench.generator_cpu);
        let mut sender = Sender::open(device, description.pool()?, Choice::Portable)?;
        let send = move || {
            fanpcap_linux::process::cpu::pin(cpu)?;
            Ok(sender.send(&plan, &ending)?.frames)
        };
        Ok(Self {
            stop,
            sender: thread::spawn(send),
        })
    }

    /// Stops sending, and returns the number of frames.
    fn stop(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.join();
        sent.map_err(|_| anyhow!("the generator's thread has panicked"))?
    }
}

/// Microseconds since 1970.
fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_micros()).unwrap_or(0))
}
