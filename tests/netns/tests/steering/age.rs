//! The age of a steering program's counters on the pages of members that get no packets.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fanpcap_group::record::Record;
use fanpcap_group::roster;
use fanpcap_linux::wait::clock::monotonic_ns;
use fanpcap_netns::dialog::Dialog;
use fanpcap_netns::{Wire, on_wire};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::{Member, Transport, member};

const GROUP: u16 = 7;

/// Counts all packets, and passes TCP packets, which the test does not send.
const COUNTS: &str = "main = inc 0 >-> tcp >-> inc 1 >-> steer_flow";

/// Frames of the transport `transport`.
fn frames(seed: u64, transport: Transport) -> Result<Vec<Frame>> {
    let frames = traffic::frames(seed, &traffic::flows(seed, 30), 0..1000)?;
    let of_it = frames
        .into_iter()
        .filter(|it| it.flow.transport == transport);
    Ok(of_it.collect())
}

fn start(wire: &Wire, program: &str) -> Result<Member> {
    let program = wire.tcpdump()?.group(GROUP, program);
    let member = program.start(&wire.scratch)?;
    member::wait_for_members(GROUP, 1)?;
    Ok(member)
}

/// The contents of the page of the member in this process.
fn page(pid: u32) -> Result<Record> {
    let seen = roster::entries()?;
    let mut pages = seen.into_iter().filter_map(|seen| seen.page);
    let page = pages.find(|page| page.pid == pid);
    page.with_context(|| format!("process {pid} has no page"))
}

fn counted_ns(pid: u32) -> Result<u64> {
    let steering = page(pid)?.steering;
    Ok(steering.context("no program on the page")?.counted_ns)
}

/// The group's first two counters, as a member in another process reads them.
fn told(other: &mut Dialog) -> Result<(usize, usize)> {
    let said = other.ask("stats 0")?;
    let (_, group) = said.split_once(" group ").with_context(|| said.clone())?;
    let mut numbers = group.split(' ').map(str::parse);
    let mut next = || numbers.next().context("no counter");
    Ok((next()??, next()??))
}

#[test]
#[ignore = "needs root: run by make test"]
fn what_a_program_drops_is_counted_before_the_eyes_of_others() -> Result<()> {
    on_wire(1, |wire| {
        let counting = start(wire, COUNTS)?;
        let mut other = Dialog::start(wire, GROUP)?;
        other.open_beside(COUNTS)?;
        let frames = frames(21, Transport::Udp)?;
        for round in 1..=3 {
            wire.send(&frames)?;
            let expected = (round * frames.len(), 0);
            await_for("the counters", LIMIT, || {
                Ok((told(&mut other)? == expected).then_some(()))
            })
            .with_context(|| format!("round {round}: {:?}", told(&mut other)))?;
        }
        ensure!(other.count(0)? == 0);
        let page = page(counting.pid())?;
        ensure!(page.counters.received == 0, "{page:?}");
        let steering = page.steering.context("a program")?;
        ensure!(
            steering.counters[0] > 0,
            "all packets went to the other member: {steering:?}"
        );
        Ok(())
    })
}

/// The number of times that a process has waited so far.
fn waits(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let mut lines = status.lines();
    let waits = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    Ok(waits.context("no such line")?.trim().parse()?)
}

#[test]
#[ignore = "needs root: run by make test"]
fn who_waits_reads_counters_ten_times_a_second_and_only_where_there_are_any() -> Result<()> {
    const PERIOD: Duration = Duration::from_secs(2);
    // `least` and `most` are how many times in a second the process must wait, and may wait.
    for (program, least, most) in [(COUNTS, 10, 12), ("main = tcp >-> steer_rrobin", 0, 0)] {
        on_wire(1, |wire| {
            let member = start(wire, program)?;
            thread::sleep(Duration::from_millis(500));
            let before = waits(member.pid())?;
            let begin = Instant::now();
            let mut ages = Vec::new();
            let waits = await_for("so many waits", LIMIT, || {
                let age = monotonic_ns().saturating_sub(counted_ns(member.pid())?);
                ages.push(Duration::from_nanos(age));
                let waits = waits(member.pid())? - before;
                let is_over = begin.elapsed() >= PERIOD;
                Ok((is_over && waits >= least).then_some(waits))
            })?;
            let most = begin.elapsed().as_secs_f64() * f64::from(most) + 3.0;
            ensure!(waits as f64 <= most, "{program}: {waits} waits");
            // On a busy machine the member may wait for its CPU, so some of the ages are large.
            // Therefore the test uses the median.
            ages.sort_unstable();
            let age = ages[ages.len() / 2];
            ensure!(age < Duration::from_secs(1), "{program}: {ages:?}");
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
#[ignore = "needs root: run by make test"]
fn who_is_away_shows_how_old_its_counters_are() -> Result<()> {
    on_wire(1, |wire| {
        // No process reads these handles, so only `ask` below publishes their counters.
        let mut away = Dialog::start(wire, GROUP)?;
        let mut other = Dialog::start(wire, GROUP)?;
        away.open_beside(COUNTS)?;
        other.open_beside(COUNTS)?;
        let frames = frames(22, Transport::Udp)?;
        wire.send(&frames)?;
        thread::sleep(Duration::from_millis(300));
        let age = |dialog: &mut Dialog| -> Result<u64> {
            let said = dialog.ask("age 0")?;
            let age = said.split(' ').nth(1).and_then(|age| age.parse().ok());
            age.with_context(|| said.clone())
        };
        let before = age(&mut other)?;
        ensure!(
            before >= 300 && told(&mut other)?.0 < frames.len(),
            "{before} ms"
        );
        // `ask` calls pcap_stats(), which also publishes the counters.
        await_for("younger counters", LIMIT, || {
            away.expect("ask 0", "done")?;
            Ok((age(&mut other)? < before).then_some(()))
        })?;
        ensure!(told(&mut other)? == (frames.len(), 0));
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_reader_that_waits_heeds_a_program_that_begins_to_count() -> Result<()> {
    on_wire(1, |wire| {
        let mut own = Dialog::start(wire, GROUP)?;
        own.expect("open main = tcp >-> steer_to 0", "opened 0")?;
        own.expect("read 0", "done")?;
        thread::sleep(Duration::from_millis(300));
        ensure!(counted_ns(own.pid())? > monotonic_ns(), "nothing changes");
        own.expect("fanout 0 main = inc 0 >-> tcp >-> steer_to 0", "done")?;
        let frames = frames(23, Transport::Udp)?;
        wire.send(&frames)?;
        await_for("the counter", LIMIT, || {
            let steering = page(own.pid())?.steering.context("a program")?;
            Ok((steering.counters[0] == frames.len() as u64).then_some(()))
        })
    })
}
