//! Members of the kernel's own modes join, leave and die during traffic. No member may get a packet
//! twice, and only packets of the changing member may be lost.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, ensure};
use fanpcap_netns::{FAR_DEVICE, on_wire};
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_testkit::{Capture, Direction, Injector, Member};
use fanpcap_testkit::{await_for, capture, member, traffic};

#[test]
#[ignore = "needs root: run by make test"]
fn newcomers_take_their_flows_and_nothing_is_seen_twice() -> Result<()> {
    on_wire(1, |wire| {
        let mut members = wire.start_group(2, 7, "hash")?;
        let traffic = Paced::start()?;
        let with_two = traffic.while_stable()?;
        for _ in 0..NEWCOMERS {
            members.push(wire.tcpdump()?.group(7, "hash").start(&wire.scratch)?);
        }
        let with_all = traffic.while_stable()?;
        let sent = traffic.stop()?;

        let captures = stop_after_last_round(members, sent)?;
        let story = Story::of(&captures)?;
        for newcomer in captures[2..].chunks(1) {
            ensure!(
                !flows_seen(newcomer, &with_all).is_empty(),
                "a newcomer got nothing"
            );
        }
        story.ensure_all_seen(0..with_two.end)?;
        story.ensure_all_seen(with_all.start..sent)
    })
}

/// The test lets several newcomers join, because an error could occur only within a few
/// microseconds of each join.
const NEWCOMERS: usize = 6;

#[test]
#[ignore = "needs root: run by make test"]
fn a_newcomer_costs_only_packets_of_its_own_flows() -> Result<()> {
    on_wire(1, |wire| {
        let mut members = wire.start_group(2, 7, "hash")?;
        let traffic = Paced::start()?;
        let with_two = traffic.while_stable()?;
        members.push(wire.tcpdump()?.group(7, "hash").start(&wire.scratch)?);
        let with_three = traffic.while_stable()?;
        let sent = traffic.stop()?;

        let captures = stop_after_last_round(members, sent)?;
        let of_newcomer = flows_seen(&captures[2..], &with_three);
        let joining = with_two.end..with_three.start;
        Story::of(&captures)?.ensure_lost_only(joining, |flow| of_newcomer.contains(&flow))
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_member_that_leaves_loses_only_what_it_had() -> Result<()> {
    one_of_three_ends_by("INT")
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_member_that_is_killed_loses_only_what_it_had() -> Result<()> {
    one_of_three_ends_by("KILL")
}

fn one_of_three_ends_by(signal: &'static str) -> Result<()> {
    on_wire(1, |wire| {
        let mut members = wire.start_group(3, 7, "hash")?;
        let traffic = Paced::start()?;
        let with_three = traffic.while_stable()?;
        let leaver = members.remove(0);
        leaver.signal(signal)?;
        let leaver = leaver.wait()?;
        member::wait_for_members(7, 2)?;
        let with_two = traffic.while_stable()?;
        let sent = traffic.stop()?;

        let mut captures = stop_after_last_round(members, sent)?;
        let of_survivors = flows_seen(&captures, &with_three);
        captures.push(leaver.capture()?);
        let story = Story::of(&captures)?;
        ensure!(
            (of_survivors.len() as u64) < FLOWS,
            "the leaver had no flow"
        );
        story.ensure_lost_only(0..with_two.start, |flow| !of_survivors.contains(&flow))?;
        story.ensure_all_seen(with_two.start..sent)
    })
}

/// Frames of [`FLOWS`] flows in turn, about 12000 a second, sent by a separate thread.
struct Paced {
    sent: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    sender: JoinHandle<Result<()>>,
}

const FLOWS: u64 = 128;

impl Paced {
    fn start() -> Result<Self> {
        let (sent, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let injector = Injector::open(FAR_DEVICE)?;
        let (counter, ending) = (Arc::clone(&sent), Arc::clone(&stop));
        let sender = thread::spawn(move || send_until(&ending, &counter, &injector));
        Ok(Self { sent, stop, sender })
    }

    /// Waits for ten rounds. Returns the numbers of the frames that were sent completely within
    /// this time.
    fn while_stable(&self) -> Result<Range<u64>> {
        // The next frame after the counted ones may already be under way.
        let start = self.sent.load(Ordering::Acquire) + 1;
        await_for("the sender", LIMIT, || {
            let sent = self.sent.load(Ordering::Acquire);
            Ok((sent >= start + 10 * FLOWS).then_some(start..sent))
        })
    }

    /// Stops the sender after a complete round, and returns the number of frames sent.
    fn stop(self) -> Result<u64> {
        self.stop.store(true, Ordering::Release);
        self.sender.join().expect("the sender does not panic")?;
        Ok(self.sent.load(Ordering::Acquire))
    }
}

fn send_until(stop: &AtomicBool, sent: &AtomicU64, injector: &Injector) -> Result<()> {
    let flows = traffic::flows(8, 32);
    let send = |sequence| {
        let flow = flows[usize::try_from(sequence % FLOWS)?];
        injector.send(&traffic::frame(flow, Direction::Request, sequence, 64)?.bytes)?;
        sent.store(sequence + 1, Ordering::Release);
        anyhow::Ok(())
    };
    let mut next = 0;
    while !stop.load(Ordering::Acquire) {
        for _ in 0..16 {
            send(next)?;
            next += 1;
        }
        thread::sleep(Duration::from_millis(1));
    }
    (next..next + FLOWS).try_for_each(send)
}

/// Waits until the members have written the last round, and stops them. In every ring the frames of
/// the last round come after all earlier frames, so the earlier frames have been written, too.
fn stop_after_last_round(members: Vec<Member>, sent: u64) -> Result<Vec<Capture>> {
    let last_round = sent - FLOWS..sent;
    await_for("the last round", LIMIT, || {
        let captures: Vec<_> = members.iter().map(Member::capture_so_far).collect();
        let seen = capture::sequences(&captures);
        Ok((seen.range(last_round.clone()).count() as u64 == FLOWS).then_some(()))
    })?;
    members
        .into_iter()
        .map(|member| member.stop()?.capture())
        .collect()
}

/// The flows of which these members captured a frame in a span of time.
fn flows_seen(captures: &[Capture], span: &Range<u64>) -> BTreeSet<u64> {
    let seen = capture::sequences(captures);
    seen.range(span.clone())
        .map(|(sequence, _)| sequence % FLOWS)
        .collect()
}

/// For each captured frame, how many times the members captured it.
struct Story {
    seen: BTreeMap<u64, usize>,
}

impl Story {
    fn of(captures: &[Capture]) -> Result<Self> {
        let seen = capture::sequences(captures);
        let twice = seen.iter().find(|&(_, &times)| times > 1);
        ensure!(
            twice.is_none(),
            "a frame was captured more than once: {twice:?}"
        );
        Ok(Self { seen })
    }

    fn ensure_all_seen(&self, span: Range<u64>) -> Result<()> {
        self.ensure_lost_only(span, |_| false)
    }

    fn ensure_lost_only(&self, span: Range<u64>, may: impl Fn(u64) -> bool) -> Result<()> {
        let mut lost = span
            .clone()
            .filter(|sequence| !self.seen.contains_key(sequence));
        let wrong = lost.find(|sequence| !may(sequence % FLOWS));
        ensure!(wrong.is_none(), "frame {wrong:?} of {span:?} was lost");
        Ok(())
    }
}
