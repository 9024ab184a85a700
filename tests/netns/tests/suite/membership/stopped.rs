//! Newcomers that are stopped at a random moment of their join, as by a debugger or `docker pause`.
//! Few of these newcomers may hold a lock at this moment, because a stopped process keeps its lock
//! and all other members wait for the lock.
//!
//! `FANPCAP_RUNS` sets how many newcomers are stopped, `FANPCAP_SEED` the random times.

use std::env;
use std::fs;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fanpcap_group::guard::{self, GroupGuard};
use fanpcap_group::identity::Identity;
use fanpcap_linux::interface;
use fanpcap_linux::netlink::diag;
use fanpcap_linux::process::child;
use fanpcap_linux::process::stat::Stat;
use fanpcap_netns::{DEVICE, Wire, on_wire};
use fanpcap_testkit::await_for::{LIMIT, await_for, within};
use fanpcap_testkit::veth::has_xdp;
use fanpcap_testkit::{Member, Program, member};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::load::print;

const GROUP: u16 = 7;

/// The number of newcomers that are stopped, unless `FANPCAP_RUNS` sets it. An earlier version held
/// the lock for much longer: in a group with a member on XDP, a quarter of the newcomers had the
/// lock when they were stopped.
const RUNS: u32 = 30;
const RUNS_BESIDE_ON_XDP: u32 = 100;

/// A newcomer that has not joined after this time counts as one that waits for the stopped
/// newcomer.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Stops newcomers on one engine.
struct Trial<'a> {
    wire: &'a Wire,
    driver: &'static str,
    /// Whether the group has another member, which stays during the whole trial.
    beside: bool,
}

/// Numbers of newcomers.
#[derive(Debug, Default)]
struct Counts {
    stopped: u32,
    /// Newcomers that were stopped before they printed that they capture.
    joining: u32,
    /// Newcomers that were stopped while they held a lock.
    holders: u32,
    /// Stopped newcomers that delayed another newcomer by more than [`AT_ONCE`].
    waited: u32,
}

impl Trial<'_> {
    fn newcomer(&self) -> Result<Program> {
        let program = self.wire.tcpdump()?.set("PCAP_DRIVER", self.driver);
        Ok(program.group(GROUP, "flow"))
    }

    /// Waits until the previous newcomers have left the group and the device.
    fn await_begin(&self) -> Result<()> {
        member::wait_for_members(GROUP, usize::from(self.beside))?;
        await_for("the device to be free", LIMIT, || {
            Ok((self.beside || !has_xdp(DEVICE)?).then_some(()))
        })
    }

    /// The time from the start of a newcomer until it captures: the median of five newcomers.
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

    /// Stops a newcomer `after` its start, and then starts another newcomer.
    fn stop_one(&self, after: Duration, counts: &mut Counts) -> Result<()> {
        let newcomer = self.newcomer()?.spawn(&self.wire.scratch)?;
        thread::sleep(after);
        stop(&newcomer)?;
        counts.stopped += 1;
        counts.joining += u32::from(!captures(&newcomer)?);
        let ifindex = interface::index(DEVICE).context("the device")?;
        let holder = guard::holder(ifindex, GROUP);
        counts.holders += u32::from(holder.is_some_and(|it| it.pid == newcomer.pid()));
        let begin = Instant::now();
        let other = self.newcomer()?.spawn(&self.wire.scratch)?;
        let joins = captures_by(&other, begin + AT_ONCE)?;
        let falls_back = other.said()?.contains("packet sockets");
        counts.waited += u32::from(!joins || falls_back);
        Ok(())
    }
}

impl Trial<'_> {
    /// A newcomer that is stopped after it has claimed the device, and before it captures.
    fn stop_with_device(&self) -> Result<Member> {
        for _ in 0..20 {
            self.await_begin()?;
            let newcomer = self.newcomer()?.spawn(&self.wire.scratch)?;
            await_for("the device's program", LIMIT, || {
                Ok(has_xdp(DEVICE)?.then_some(()))
            })?;
            stop(&newcomer)?;
            // The test needs a newcomer that has not joined yet: if it had joined, its member page
            // would show which process has taken the device.
            if diag::packet_sockets()?.iter().all(|it| it.fanout.is_none()) {
                return Ok(newcomer);
            }
        }
        bail!("no newcomer could be stopped in time")
    }
}

fn stop(member: &Member) -> Result<()> {
    member.signal("STOP")?;
    await_for("it to be stopped", LIMIT, || {
        Ok(Stat::of(member.pid()).filter(Stat::is_stopped))
    })
    .map(drop)
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

/// Environment variable that makes this program, as another process, take the group's lock.
const HOLDER: &str = "FANPCAP_HOLDS_LOCK";

/// The number of the signal (signal(7)).
const SIGSTOP: i32 = 19;

/// Returns false in the test's own process. In the process that [`start_holder`] starts, takes the
/// group's lock, and then stops or sleeps until the process is killed.
fn is_holder() -> Result<bool> {
    let Ok(how) = env::var(HOLDER) else {
        return Ok(false);
    };
    let ifindex = interface::index(DEVICE).context("the device")?;
    let _turn = GroupGuard::take(&Identity::outside(GROUP, ifindex))?;
    if how == "stops" {
        child::signal(process::id(), SIGSTOP)?;
    }
    loop {
        thread::park();
    }
}

/// Starts this test program as another process, which runs only the test `test` and takes the lock
/// there.
fn start_holder(wire: &Wire, test: &str, how: &str) -> Result<Member> {
    let name = format!("membership::stopped::{test}");
    let own = Program::new(env::current_exe()?, "")?.set(HOLDER, how);
    let own = own.args(["--include-ignored", "--exact", &name]);
    let holder = own.ends_with_caller().spawn(&wire.scratch)?;
    let ifindex = interface::index(DEVICE).context("the device")?;
    await_for("the process to take the lock", LIMIT, || {
        let found = guard::holder(ifindex, GROUP).filter(|it| it.pid == holder.pid());
        Ok(found.filter(|it| it.is_stopped() || how != "stops"))
    })?;
    Ok(holder)
}

#[test]
#[ignore = "needs root: run by make test"]
fn who_is_stopped_with_the_lock_is_named() -> Result<()> {
    if is_holder()? {
        return Ok(());
    }
    for (driver, beside) in [("tpacket", false), ("tpacket", true), ("xdp", true)] {
        on_wire(1, |wire| {
            let trial = Trial {
                wire,
                driver,
                beside,
            };
            let start = || trial.newcomer()?.start(&wire.scratch);
            let _first = beside.then(start).transpose()?;
            let holder = start_holder(wire, "who_is_stopped_with_the_lock_is_named", "stops")?;
            let begin = Instant::now();
            let said = trial.newcomer()?.spawn(&wire.scratch)?.wait()?.said;
            let took = begin.elapsed();
            ensure!(
                said.contains(&named(holder.pid())),
                "{driver}, {beside}: {said}"
            );
            ensure!(took < within(3 * AT_ONCE), "{driver}, {beside}: {took:?}");
            drop(holder);
            start().map(drop)
        })?;
    }
    Ok(())
}

/// The message of a newcomer that waited for a stopped process.
fn named(pid: u32) -> String {
    format!("process {pid}, which is stopped, is changing it: continue or end that process")
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_newcomer_makes_its_programs_while_another_has_the_lock() -> Result<()> {
    if is_holder()? {
        return Ok(());
    }
    on_wire(1, |wire| {
        let trial = Trial {
            wire,
            driver: "tpacket",
            beside: false,
        };
        let name = "a_newcomer_makes_its_programs_while_another_has_the_lock";
        let holder = start_holder(wire, name, "sleeps")?;
        let newcomer = trial.newcomer()?.spawn(&wire.scratch)?;
        await_for("its programs", LIMIT, || {
            ensure!(!captures(&newcomer)?, "it captures");
            Ok(has_program(newcomer.pid())?.then_some(()))
        })?;
        drop(holder);
        let joins = captures_by(&newcomer, Instant::now() + LIMIT)?;
        ensure!(joins, "{}", newcomer.said()?);
        Ok(())
    })
}

/// The newcomer is stopped at a moment at which no process holds a lock, but the device has a BPF
/// program that only the stopped newcomer has open.
#[test]
#[ignore = "needs root: run by make test"]
fn who_is_stopped_with_the_device_is_named() -> Result<()> {
    on_wire(1, |wire| {
        let trial = Trial {
            wire,
            driver: "xdp",
            beside: false,
        };
        let first = trial.stop_with_device()?;
        let begin = Instant::now();
        let other = wire.tcpdump()?.set("PCAP_DRIVER", "xdp");
        let other = other.group(GROUP + 1, "flow").spawn(&wire.scratch)?;
        await_for(
            "the other newcomer to name the stopped process",
            LIMIT,
            || {
                let said = other.said()?;
                Ok(said.contains(&named(first.pid())).then_some(()))
            },
        )
        .with_context(|| format!("{:?}", other.said()))?;
        let took = begin.elapsed();
        ensure!(took < within(3 * AT_ONCE), "{took:?}");
        first.signal("CONT")?;
        ensure!(
            captures_by(&first, Instant::now() + LIMIT)?,
            "the first member does not capture in time"
        );
        Ok(())
    })
}

/// Whether a process has a BPF program open.
fn has_program(pid: u32) -> Result<bool> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
    let mut links = descriptors.filter_map(|it| fs::read_link(it.path()).ok());
    Ok(links.any(|it| it.as_os_str() == "anon_inode:bpf-prog"))
}

/// Tests that last too long for the usual runs.
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
            let runs_here = match (driver, beside) {
                ("xdp", true) => RUNS_BESIDE_ON_XDP,
                _ => RUNS,
            };
            trial.run(runs.unwrap_or(runs_here))
        })?;
        // Of a hundred newcomers, two hold a lock if the machine is quiet, and seven if it is busy:
        // on a busy machine a process may lose its CPU while it holds a lock. The test allows about
        // twice as many.
        let most = counts.stopped / 7 + 1;
        ensure!(
            counts.holders <= most,
            "{counts:?}: at most {most} may hold a lock"
        );
        // The first member on XDP holds the device for most of its join
        // (`who_is_stopped_with_the_device_is_named`), so another newcomer may have to wait.
        let may_wait = driver == "xdp" && !beside;
        ensure!(
            may_wait || counts.waited <= most,
            "{counts:?}: others may wait for at most {most}"
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
