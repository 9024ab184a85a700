//! The counters on members' pages: those of members whose applications never ask for counters, and
//! those of killed members.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_group::closing::close_counting;
use fanpcap_group::page::GroupDir;
use fanpcap_group::record::Record;
use fanpcap_group::roster::{self, RosterEntry};
use fanpcap_linux::interface;
use fanpcap_linux::process::pidfd::Process;
use fanpcap_linux::wait::clock::monotonic_ns;
use fanpcap_netns::{DEVICE, FAR_DEVICE, Wire, on_wire};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::traffic::Frame;
use fanpcap_testkit::{Injector, Member, Program, member, traffic, veth};

use crate::two_wires::on_two_wires;

const GROUP: u16 = 7;

#[test]
#[ignore = "needs root: run by make test"]
fn counters_are_fresh_of_programs_that_never_ask() -> Result<()> {
    for how in ["loop", "poll", "immediate"] {
        on_wire(1, |wire| ensure_fresh(wire, how)).context(how)?;
    }
    Ok(())
}

fn ensure_fresh(wire: &Wire, how: &str) -> Result<()> {
    const PACKETS: u64 = 30_000;
    const ROUNDS: usize = 15;
    let members = start(wire, 3, &["hash", "0", "0", how])?;
    let frames = traffic::frames(1, &traffic::flows(1, 20), 0..PACKETS)?;
    let mut ages = Vec::new();
    for (round, some) in frames.chunks(frames.len() / ROUNDS).enumerate() {
        wire.send(some)?;
        thread::sleep(Duration::from_millis(100));
        let pages = pages()?;
        ensure!(pages.len() == members.len(), "{pages:?}");
        if round > 3 {
            ages.push(oldest_of(&pages));
        }
    }
    ensure_mostly_fresh(ages, Duration::from_secs(1))?;
    await_totals("the last numbers", |sum| {
        sum.received == PACKETS && sum.taken == PACKETS
    })?;
    let mut handed = 0;
    for (page, member) in by_pid(pages()?, members)? {
        let packets = packets_of(&member.stop()?.said)?;
        ensure!(page.taken == Some(packets), "{packets} of {page:?}");
        handed += packets;
    }
    ensure!(handed == PACKETS, "{handed} packets");
    Ok(())
}

#[test]
#[ignore = "needs root: run by make test"]
fn what_a_stalled_member_lost_is_told_once_it_reads_again() -> Result<()> {
    const PACKETS: u64 = 40_000;
    on_wire(1, |wire| {
        for how in ["loop", "immediate"] {
            let members = start(wire, 2, &["lb", "524288", "0", how])?;
            let frames = traffic::frames(1, &traffic::flows(1, 20), 0..PACKETS)?;
            wire.send(&frames[..2000])?;
            // On a busy machine, the reader of such a small ring may lose some of these first
            // packets, too.
            await_totals("the first packets", |sum| {
                sum.received == 2000 && sum.taken + sum.dropped == 2000
            })?;
            members[0].signal("STOP")?;
            wire.send(&frames[2000..])?;
            members[0].signal("CONT")?;
            let sum = await_totals("the last numbers", |sum| {
                sum.received == PACKETS && sum.taken + sum.dropped == PACKETS
            })?;
            ensure!(sum.dropped > 1000, "{sum:?}");
            let stalled = by_pid(pages()?, members)?;
            let half = stalled
                .iter()
                .find(|(page, _)| page.counters.received != PACKETS / 2);
            ensure!(half.is_none(), "{:?}", half.map(|(page, _)| page));
            for (_, member) in stalled {
                member.stop()?;
            }
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn what_a_killed_member_lost_is_known_to_the_packet() -> Result<()> {
    const HANDED: u64 = 1000;
    on_wire(1, |wire| {
        let healthy = start(wire, 1, &["lb", "0", "0"])?;
        let mut killed = start_on(wire, 1, &["lb", "1048576", &HANDED.to_string()])?;
        let mut killed = killed.pop().context("no member")?;
        member::wait_for_members(GROUP, 2)?;
        let before = veth::counters(DEVICE)?.received;
        let seen = roster::entries()?;
        let seen = seen.iter().find(|seen| is_of(seen, killed.pid()));
        let entry = seen.context("no page of the member")?;
        let RosterEntry { socket, page, .. } = entry;
        let group_dir = GroupDir::of(socket.ifindex, GROUP)?;
        let held = group_dir.hold(killed.pid(), entry.id())?;
        ensure!(page.as_ref() == held.record().as_ref(), "{page:?}");
        let process = Process::open(killed.pid())?;
        let socket = process.socket(killed.pid(), entry.id().socket())?;

        let frames = traffic::frames(1, &traffic::flows(1, 20), 0..4000)?;
        wire.send_as_tap(&frames)?;
        killed.wait_until_says("stalled")?;
        wire.send_as_tap(&traffic::frames(2, &traffic::flows(1, 20), 0..30_000)?)?;
        killed.signal("KILL")?;
        ensure!(process.ends_within(Some(LIMIT))?, "it lives");
        // `records` finds that the killed member's page is stale, and removes it.
        ensure!(group_dir.records().len() == 1);
        wire.send_as_tap(&frames)?;
        let closed = while_sending(&frames, || Ok(close_counting(&held, socket)?))?;
        wire.send_as_tap(&frames)?;

        let offered = veth::counters(DEVICE)?.received - before;
        let page = held.record().context("no page")?;
        ensure!(page.taken == Some(HANDED), "{page:?}");
        let lost = closed.lost(&page).context("nothing known")?;
        let refused = lost.refused.context("the refused were not counted")?;
        let all = [lost.unread, lost.dropped, refused];
        // Do not check `refused`: it depends on the scheduler whether packets come while the socket
        // is being closed.
        ensure!(lost.unread > 0 && lost.dropped > 0, "{lost:?}");
        let others = offered - HANDED - all.iter().sum::<u64>();
        let what = format!("{others} packets at the other member, {lost:?}");
        // On a busy machine the ring of the other member may fill, so the other member may drop
        // packets.
        await_totals(&what, |sum| {
            sum.received == others && sum.taken + sum.dropped == others
        })?;
        drop(healthy);
        Ok(())
    })
}

/// Runs `work` while frames arrive. Some frames also arrive before and after.
fn while_sending<T>(frames: &[Frame], work: impl FnOnce() -> Result<T>) -> Result<T> {
    let done = AtomicBool::new(false);
    let (started, has_started) = mpsc::channel();
    let done = &done;
    thread::scope(|scope| {
        let sender = scope.spawn(move || -> Result<()> {
            let injector = Injector::open(FAR_DEVICE)?;
            while !done.load(Ordering::Relaxed) {
                for frame in frames.iter().take(100) {
                    injector.send(&frame.bytes)?;
                }
                let _ = started.send(());
            }
            Ok(())
        });
        has_started.recv()?;
        let result = work();
        done.store(true, Ordering::Relaxed);
        sender.join().expect("the sender ends")?;
        result
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn each_device_of_a_handle_has_a_page_that_lives() -> Result<()> {
    const EACH: [u64; 2] = [90, 40];
    on_two_wires(|wires| {
        let program = wires.program("never_asks", &["f1^f2", "-", "-", "0", "0"])?;
        let program = program.set("PCAP_GROUP_f1", "7").set("PCAP_GROUP_f2", "8");
        let _member = program.set("PCAP_FANOUT", "hash").start(&wires.scratch)?;
        for (wire, count) in EACH.iter().enumerate() {
            for number in 0..*count {
                wires.send(u8::try_from(wire)?, u8::try_from(number)?)?;
            }
        }
        for (device, count) in ["f1", "f2"].into_iter().zip(EACH) {
            let ifindex = interface::index(device).context("no device")?;
            await_for(device, LIMIT, || {
                let seen = roster::entries()?;
                let seen = seen.into_iter().find(|seen| seen.socket.ifindex == ifindex);
                let page = seen.and_then(|seen| seen.page).context("no page")?;
                let is_right = page.taken == Some(count) && page.counters.received == count;
                Ok(is_right.then_some(()))
            })?;
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn who_joins_late_has_taken_only_what_is_the_groups() -> Result<()> {
    on_wire(1, |wire| {
        let program = Program::new(wire.compile("joins_late")?, "joined")?;
        let program = program
            .args([DEVICE, "7", FAR_DEVICE])
            .set("PCAP_DRIVER", "tpacket");
        let mut late = program.start(&wire.scratch)?;
        let page = await_for("the page", LIMIT, || {
            let page = pages()?.pop();
            Ok(page.filter(|page| page.counters.received == 50))
        })?;
        ensure!(page.taken == Some(0), "{page:?}");
        late.signal("USR1")?;
        late.wait_until_says("read 150")?;
        await_totals("what it has read", |sum| sum.taken == 50)?;
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn pages_tell_which_handles_nobody_reads() -> Result<()> {
    const STALL_AT: u64 = 10;
    const UNREAD: Duration = Duration::from_millis(500);
    on_wire(1, |wire| {
        let stall_at = STALL_AT.to_string();
        let member = |stall_at: &str, how| {
            let started = start_on(wire, 1, &["lb", "0", stall_at, how])?.pop();
            started.context("no member")
        };
        let loops = member("0", "loop")?;
        let polls = member("0", "poll")?;
        let idle = member("0", "idle")?;
        let mut stalled = member(&stall_at, "immediate")?;
        member::wait_for_members(GROUP, 4)?;
        let frames = traffic::frames(1, &traffic::flows(1, 20), 0..100)?;
        wire.send(&frames)?;
        stalled.wait_until_says("stalled")?;
        thread::sleep(UNREAD);
        let told = |member: &Member| {
            let pages = pages()?;
            let page = pages.iter().find(|page| page.pid == member.pid());
            let page = page.context("no page")?;
            anyhow::Ok((page.unread_for(monotonic_ns()), page.is_never_read()))
        };
        await_for("the looping program to wait", LIMIT, || {
            Ok((told(&loops)? == (None, false)).then_some(()))
        })?;
        // The application `polls` checks for packets every 50 ms. Its time without a check depends
        // on the scheduler, so the test does not compare this time.
        ensure!(!told(&polls)?.1, "it was read");
        for (unread, never) in [(&idle, true), (&stalled, false)] {
            let (unread_for, is_never_read) = told(unread)?;
            let long = unread_for.is_some_and(|age| age >= UNREAD);
            ensure!(long && is_never_read == never, "{unread_for:?}, {never}");
        }
        Ok(())
    })
}

/// The sums of the counters on all pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    pub(crate) received: u64,
    pub(crate) dropped: u64,
    pub(crate) taken: u64,
}

pub(crate) fn await_totals(what: &str, are_right: impl Fn(&Sum) -> bool) -> Result<Sum> {
    let mut last = Sum::default();
    let awaited = await_for(what, LIMIT, || {
        last = Sum::default();
        for page in pages()? {
            last.received += page.counters.received;
            last.dropped += page.counters.dropped;
            last.taken += page.taken.context("not read by our reader")?;
        }
        Ok(are_right(&last).then_some(last))
    });
    awaited.with_context(|| format!("{last:?}"))
}

pub(crate) fn pages() -> Result<Vec<Record>> {
    let seen = roster::entries()?.into_iter();
    Ok(seen.filter_map(|seen| seen.page).collect())
}

pub(crate) fn oldest_of(pages: &[Record]) -> Duration {
    let oldest = pages.iter().map(|page| page.read_ns).min().unwrap_or(0);
    Duration::from_nanos(monotonic_ns().saturating_sub(oldest))
}

/// Checks that in half of the readings the counters were younger than `limit`.
pub(crate) fn ensure_mostly_fresh(mut ages: Vec<Duration>, limit: Duration) -> Result<()> {
    ages.sort_unstable();
    let middle = ages.get(ages.len() / 2).context("no look")?;
    ensure!(*middle < limit, "counters of {ages:?} ago");
    Ok(())
}

pub(crate) fn is_of(seen: &RosterEntry, pid: u32) -> bool {
    seen.page.as_ref().is_some_and(|page| page.pid == pid)
}

fn by_pid(pages: Vec<Record>, members: Vec<Member>) -> Result<Vec<(Record, Member)>> {
    let page_of = |member: &Member| pages.iter().find(|page| page.pid == member.pid()).cloned();
    let paired = members
        .into_iter()
        .map(|member| Some((page_of(&member)?, member)));
    paired.collect::<Option<_>>().context("a page is missing")
}

fn packets_of(said: &str) -> Result<u64> {
    let packets = said.lines().find_map(|line| line.strip_suffix(" packets"));
    Ok(packets.with_context(|| said.to_owned())?.parse()?)
}

/// Starts programs that never ask for counters, in a group. `how` has the arguments of
/// `c/never_asks.c` from MODE on.
pub(crate) fn start(wire: &Wire, count: usize, how: &[&str]) -> Result<Vec<Member>> {
    let members = start_on(wire, count, how)?;
    member::wait_for_members(GROUP, count)?;
    Ok(members)
}

pub(crate) fn start_on(wire: &Wire, count: usize, how: &[&str]) -> Result<Vec<Member>> {
    let program = wire.scratch.file("never_asks");
    if !program.exists() {
        wire.compile("never_asks")?;
    }
    let start = |_| {
        let program = Program::new(&program, "ready")?.args([DEVICE, "7"]);
        program.args(how).start(&wire.scratch)
    };
    (0..count).map(start).collect()
}
