//! Newcomers that are stopped at a random moment of their join, as by a debugger or `docker pause`:
//! hardly one has a lock then, for which everybody else would wait.
//!
//! `FANPCAP_RUNS` sets how many are stopped, `FANPCAP_SEED` when.

use std::env;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fanpcap_group::turn;
use fanpcap_linux::interface;
use fanpcap_linux::process::stat::Stat;
use fanpcap_netns::{DEVICE, Wire, on_wire};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::veth::has_xdp;
use fanpcap_testkit::{Member, Program, member};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::load::print;

const GROUP: u16 = 7;

/// How many are stopped, unless `FANPCAP_RUNS` says so.
const RUNS: u32 = 30;

/// Who has not joined by then has waited for the one that is stopped.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Newcomers that are stopped, on one engine.
struct Trial<'a> {
    wire: &'a Wire,
    driver: &'static str,
    /// Whether the group has a member that stays.
    beside: bool,
}

/// What became of them.
#[derive(Debug, Default)]
struct Counts {
    stopped: u32,
    /// Before they said that they capture.
    joining: u32,
    /// With a lock.
    holders: u32,
    /// While they were stopped, another one did not join at once.
    waited: u32,
}

impl Trial<'_> {
    fn newcomer(&self) -> Result<Program> {
        let program = self.wire.tcpdump()?.set("PCAP_DRIVER", self.driver);
        Ok(program.group(GROUP, "flow"))
    }

    /// Waits until the group and the device are as they are before each newcomer.
    fn await_begin(&self) -> Result<()> {
        member::wait_for_members(GROUP, usize::from(self.beside))?;
        await_for("the device to be free", LIMIT, || {
            Ok((self.beside || !has_xdp(DEVICE)?).then_some(()))
        })
    }

    /// How long a newcomer takes from its start until it captures: the median of five.
    fn time(&self) -> Result<Duration> {
        let one = |_| -> Result<Duration> {
            self.await_begin()?;
            let begin = Instant::now();
            let newcomer = self.newcomer()?.spawn(&self.wire.scratch)?;
            ensure!(captures_by(&newcomer, begin + LIMIT)?, "it does not join");
            Ok(begin.elapsed())
        };
        let mut times = (0..5).map(one).collect::<Result<Vec<_>>>()?;
        times.sort_unstable();
        Ok(times[2])
    }

    fn run(&self, runs: u32) -> Result<Counts> {
        let first = if self.beside {
            Some(self.newcomer()?.start(&self.wire.scratch)?)
        } else {
            None
        };
        let took = self.time()?;
        let seed = env::var("FANPCAP_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        let mut rng = Pcg64::seed_from_u64(seed.unwrap_or(1));
        let mut counts = Counts::default();
        for _ in 0..runs {
            self.await_begin()?;
            self.stop_one(rng.random_range(Duration::ZERO..took), &mut counts)?;
        }
        drop(first);
        let text = format!("{}, beside a member: {}", self.driver, self.beside);
        print(&format!("{text}, within {took:?}: {counts:?}"));
        Ok(counts)
    }

    /// Stops a newcomer so long after its start, and has another join.
    fn stop_one(&self, after: Duration, counts: &mut Counts) -> Result<()> {
        let newcomer = self.newcomer()?.spawn(&self.wire.scratch)?;
        thread::sleep(after);
        newcomer.signal("STOP")?;
        await_for("it to be stopped", LIMIT, || {
            Ok(Stat::of(newcomer.pid()).filter(Stat::is_stopped))
        })?;
        counts.stopped += 1;
        counts.joining += u32::from(!captures(&newcomer)?);
        let ifindex = interface::index(DEVICE).context("the device")?;
        let holder = turn::holder(ifindex, GROUP);
        counts.holders += u32::from(holder.is_some_and(|it| it.pid == newcomer.pid()));
        let begin = Instant::now();
        let other = self.newcomer()?.spawn(&self.wire.scratch)?;
        let joins = captures_by(&other, begin + AT_ONCE)?;
        let falls_back = other.said()?.contains("packet sockets");
        counts.waited += u32::from(!joins || falls_back);
        Ok(())
    }
}

fn captures(member: &Member) -> Result<bool> {
    Ok(member.said()?.contains("listening on"))
}

/// Whether a newcomer captures before `end`.
fn captures_by(member: &Member, end: Instant) -> Result<bool> {
    while Instant::now() < end {
        if captures(member)? {
            return Ok(true);
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(false)
}

/// Longer than anybody waits for.
mod long {
    use super::*;

    fn hardly_one_has_a_lock(driver: &'static str, beside: bool) -> Result<()> {
        let runs = env::var("FANPCAP_RUNS")
            .ok()
            .and_then(|runs| runs.parse().ok());
        let counts = on_wire(1, |wire| {
            let trial = Trial {
                wire,
                driver,
                beside,
            };
            trial.run(runs.unwrap_or(RUNS))
        })?;
        // Two of a hundred on a quiet machine. A busy one takes the CPU from who has a lock.
        let most = counts.stopped / 10 + 3;
        ensure!(
            counts.holders <= most,
            "{counts:?}: {most} at most with a lock"
        );
        Ok(())
    }

    #[test]
    #[ignore = "needs root: run by make test-long"]
    fn hardly_a_first_member_has_a_lock() -> Result<()> {
        hardly_one_has_a_lock("tpacket", false)
    }

    #[test]
    #[ignore = "needs root: run by make test-long"]
    fn hardly_a_newcomer_beside_a_member_has_a_lock() -> Result<()> {
        hardly_one_has_a_lock("tpacket", true)
    }

    #[test]
    #[ignore = "needs root: run by make test-long"]
    fn hardly_a_first_member_on_xdp_has_a_lock() -> Result<()> {
        hardly_one_has_a_lock("xdp", false)
    }

    #[test]
    #[ignore = "needs root: run by make test-long"]
    fn hardly_a_newcomer_beside_a_member_on_xdp_has_a_lock() -> Result<()> {
        hardly_one_has_a_lock("xdp", true)
    }
}
