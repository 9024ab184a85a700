//! Many events in one run, in distribution mode: a node is drained and restored, ten weights
//! change, three nodes join, two nodes die, an agent hangs, and a port is blind. Whenever no
//! packets come, the account's spans must contain tcpdump's counts of each bucket.

mod course;
mod joining;
mod figures;
mod comparison;
mod question;

use std::fmt::Debug;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use fanpcap_buckets::layout::BUCKETS as COUNT;
use fanpcap_select::Selection;
use fanpcap_testkit::{await_for, netns};

use crate::account::Line;
use crate::owners::Owners;
use crate::readers::Reader;
use crate::stage::{BUCKETS, Engine, LOOK, PATIENCE, REST, Stage, id, seconds};
use crate::wire::{self, Sender};
use comparison::{compare, is_of, report};
use course::{Draw, Event, NODES, course};
use figures::{Bounds, account, sum, truth};
use question::Question;

/// Packets a second that are sent. Each of six nodes receives all of them.
const RATE: u64 = 20_000;

/// By how many buckets a node's share may differ from its exact share by weight, due to rounding.
const ROUNDING: usize = 8;

/// The time between two events.
const BETWEEN: Duration = Duration::from_millis(1500);

/// For this long before and after an event, packets may be uncertain in the account, because
/// reports are a second apart and the nodes' clocks may differ.
const AROUND: Duration = Duration::from_secs(2);

/// When a node has lost its buckets, the analyzer learns this within a second, and then allows the
/// node another second to learn it too.
const DROPPED: Duration = Duration::from_secs(2);

/// If a node is silent for this long, the analyzer counts it as dead.
const SILENT: Duration = Duration::from_secs(15);

/// A running cluster, and what the test knows about its past.
struct Run {
    stage: Stage,
    draw: Draw,
    begun: Instant,
    /// Each node's weight; 0 if the node is dead, or if the cluster takes it for dead.
    weights: Vec<u16>,
    owners: Owners,
    question: Question,
    selection: Selection,
    /// The bucket of each packet that was sent.
    buckets: Vec<usize>,
    /// The number of the first packet after the last pause in the traffic.
    first: u64,
}

impl Run {
    fn new(engine: Engine, seed: u64) -> Result<Self> {
        let mut stage = Stage::new(engine, "")?;
        stage.target_rate = RATE;
        let owners = stage.await_owners(&[0, 1, 2])?;
        let mut question = Question::default();
        question.own(&owners, NODES);
        Ok(Self {
            selection: stage.selection()?,
            stage,
            draw: Draw::new(seed),
            begun: Instant::now(),
            weights: vec![1; NODES],
            owners,
            question,
            buckets: Vec::new(),
            first: 0,
        })
    }

    fn print(&self, what: impl Debug) {
        println!("{:6.1} s: {what:?}", self.begun.elapsed().as_secs_f64());
    }

    /// The number of the next packet.
    fn next(&self) -> u64 {
        self.stage.sender.as_ref().map_or(0, Sender::next)
    }

    /// The packets that may be uncertain because of an event that began at packet `from` and ends
    /// now, as a range of packet numbers.
    fn since(&self, from: u64) -> std::ops::Range<u64> {
        let around = packets(AROUND);
        from.saturating_sub(around).max(self.first)..self.next() + around
    }

    /// The nodes that are alive.
    fn nodes(&self) -> Vec<usize> {
        let nodes = self.weights.iter().enumerate();
        nodes
            .filter(|(_, weight)| **weight > 0)
            .map(|(node, _)| node)
            .collect()
    }

    /// Waits until each node's share matches its weight. Returns the earlier owners.
    fn follow(&mut self, from: u64) -> Result<Owners> {
        let sum: usize = self.weights.iter().map(|it| usize::from(*it)).sum();
        let wanted = |owners: &Owners| {
            self.weights.iter().enumerate().all(|(node, weight)| {
                let name = Some(id(node));
                let share = owners.iter().filter(|owner| **owner == name).count();
                let mine = COUNT * usize::from(*weight) / sum;
                share.abs_diff(mine) <= ROUNDING && (*weight > 0 || share == 0)
            })
        };
        let owners = self.stage.await_topology(wanted)?;
        let before = std::mem::replace(&mut self.owners, owners);
        let numbers = self.since(from);
        self.question.moved(&before, &self.owners, numbers);
        self.question.own(&self.owners, self.weights.len());
        Ok(before)
    }

    fn meet(&mut self, event: Event) -> Result<()> {
        let begun = Instant::now();
        let from = self.next();
        let node = if event == Event::Join {
            self.weights.len()
        } else {
            let nodes = self.nodes();
            self.draw.one_of(&nodes)
        };
        match event {
            Event::Drain => self.drain(node, from)?,
            Event::Weight => self.weigh(node, from)?,
            Event::Join => self.join(from)?,
            Event::Die => self.die(node, from)?,
            Event::Hang => self.hang(node, from)?,
            Event::Blind => self.blind(node, from)?,
            Event::Rest => return self.rest(),
        }
        self.print((event, id(node), begun.elapsed(), &self.weights));
        thread::sleep(BETWEEN);
        Ok(())
    }

    fn drain(&mut self, node: usize, from: u64) -> Result<()> {
        let weight = std::mem::take(&mut self.weights[node]);
        self.stage.cluster(&["drain", &id(node)])?;
        self.follow(from)?;
        thread::sleep(BETWEEN);
        let from = self.next();
        self.weights[node] = weight;
        self.stage.cluster(&["drain", "--undo", &id(node)])?;
        self.follow(from).map(drop)
    }

    fn weigh(&mut self, node: usize, from: u64) -> Result<()> {
        let others = [1, 2, 3].into_iter().filter(|it| *it != self.weights[node]);
        let others: Vec<u16> = others.collect();
        let weight = self.draw.one_of(&others);
        self.weights[node] = weight;
        self.stage
            .cluster(&["weight", &id(node), &weight.to_string()])?;
        self.follow(from).map(drop)
    }

    /// Changes the weight of a node that does not hang, is not blind, and is not `than`.
    fn weigh_other(&mut self, than: usize) -> Result<()> {
        let mut nodes = self.nodes();
        nodes.retain(|node| *node != than);
        let node = self.draw.one_of(&nodes);
        let from = self.next();
        self.weigh(node, from)?;
        self.print((Event::Weight, id(node), &self.weights));
        Ok(())
    }

    fn join(&mut self, from: u64) -> Result<()> {
        let node = self.stage.join()?;
        self.weights.push(1);
        self.follow(from)?;
        let numbers = self.since(from);
        self.question.fault(node, &self.owners, numbers);
        Ok(())
    }

    /// A node's machine dies: its port passes no packets, and its agent is killed.
    fn die(&mut self, node: usize, from: u64) -> Result<()> {
        self.stage.mirror.set_loss(node, 1.0)?;
        self.stage.kill(node)?;
        self.weights[node] = 0;
        let before = self.follow(from)?;
        // Until the node counts as dead and has no buckets, the analyzer can't know whether the
        // node captures.
        let mut numbers = self.since(from);
        numbers.end += packets(DROPPED);
        numbers.end = numbers.end.max(from + packets(SILENT + 2 * AROUND));
        self.question.death(node, &before, numbers);
        Ok(())
    }

    /// A node's agent is stopped. Other nodes get its buckets, but its device still selects as
    /// before.
    fn hang(&mut self, node: usize, from: u64) -> Result<()> {
        let (begun, time) = (Instant::now(), seconds("FANPCAP_HANG", 45));
        self.stage.signal(node, "STOP")?;
        let weight = std::mem::take(&mut self.weights[node]);
        let before = self.follow(from)?;
        self.print(("new owners", begun.elapsed()));
        for _ in 0..2 {
            thread::sleep(BETWEEN);
            self.weigh_other(node)?;
        }
        thread::sleep(time.saturating_sub(begun.elapsed()));
        let back = self.next();
        self.stage.signal(node, "CONT")?;
        self.weights[node] = weight;
        self.follow(back)?;
        let numbers = self.since(from);
        self.question.fault(node, &before, numbers);
        Ok(())
    }

    fn blind(&mut self, node: usize, from: u64) -> Result<()> {
        let (begun, time) = (Instant::now(), seconds("FANPCAP_BLIND", 8));
        let before = self.owners.clone();
        self.stage.mirror.set_loss(node, 1.0)?;
        thread::sleep(BETWEEN);
        self.weigh_other(node)?;
        thread::sleep(time.saturating_sub(begun.elapsed()));
        self.stage.mirror.set_loss(node, 0.0)?;
        let numbers = self.since(from);
        for owners in [&before, &self.owners] {
            self.question.fault(node, owners, numbers.clone());
        }
        Ok(())
    }

    /// Stops the traffic, and compares the account with tcpdump's packets.
    fn rest(&mut self) -> Result<()> {
        thread::sleep(BETWEEN);
        let sent = self.stage.rest()?;
        let dropped = self.stage.mirror.dropped()?;
        ensure!(
            dropped.iter().all(|it| *it == 0),
            "the mirror dropped {dropped:?}: the machine is too slow"
        );
        let begun = Instant::now();
        self.question.end_part(&self.owners);
        let (line, rows) = self.await_rest()?;
        let rested = begun.elapsed();
        let captured = self.captured(&line)?;
        let new = wire::buckets(self.selection, self.first..sent);
        self.buckets.extend(new);
        let truth = truth(&self.buckets, &captured)?;
        let question = self.question.doubtful(&self.buckets);
        let wrong = compare(&rows, &truth, &question);
        self.print(("rest", rested));
        report(&rows, &truth, &question);
        ensure!(
            wrong.is_empty(),
            "{} figures are wrong: {:#?}\n{line}\n{}",
            wrong.len(),
            &wrong[..wrong.len().min(20)],
            self.stage.output()
        );
        self.first = sent;
        Ok(())
    }

    /// Waits until the account does not change for a while and contains all packets that were
    /// offered. Returns the analyzer's line, and its account of each bucket.
    fn await_rest(&self) -> Result<(Line, Vec<Bounds>)> {
        let mut first: Option<Line> = None;
        let mut rows = None;
        let line = self.stage.await_line("an account at rest", |line| {
            let same = first.as_ref().filter(|first| line.is_as(first));
            let rested = same.map(|first| line.time().saturating_sub(first.time()));
            if rested.is_none() {
                first = line.is("offered", self.stage.sent).then(|| line.clone());
            }
            // The file may still have an account from before `line`, so the two are compared.
            rows = account(&self.stage.scratch.file(BUCKETS)).ok();
            let rows = rows.as_ref();
            rested >= Some(REST) && rows.is_some_and(|rows| is_of(line, &sum(rows)))
        })?;
        Ok((line, rows.context("the account of each bucket")?))
    }

    /// Waits until the tcpdumps get no more packets. Returns the numbers of the packets in all
    /// tcpdumps' files.
    fn captured(&self, line: &Line) -> Result<Vec<u64>> {
        let (least, _) = line.span("captured")?;
        let least = usize::try_from(least)?;
        let count = || self.stage.readers.iter().map(Reader::count).sum::<usize>();
        let (mut last, mut since) = (0, Instant::now());
        await_for("tcpdump's packets", PATIENCE, || {
            thread::sleep(LOOK);
            if std::mem::replace(&mut last, count()) != last {
                since = Instant::now();
            }
            let rests = since.elapsed() > 2 * BETWEEN && last >= least;
            Ok(rests.then_some(()))
        })
        .with_context(|| format!("tcpdump has {} of {least}", count()))?;
        Ok(self.stage.numbers())
    }
}

/// How many packets are sent in this time.
fn packets(time: Duration) -> u64 {
    u64::try_from(u128::from(RATE) * time.as_millis() / 1000).unwrap_or(u64::MAX)
}

/// One run. The same `FANPCAP_SEED` repeats it.
fn run(engine: Engine) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let set = std::env::var("FANPCAP_SEED")
        .ok()
        .and_then(|it| it.parse().ok());
    let seed = set.unwrap_or(u64::from(now.subsec_nanos()));
    let mut run = Run::new(engine, seed)?;
    println!("{engine:?}, FANPCAP_SEED={seed}");
    let course = course(&mut run.draw);
    let done = course.into_iter().try_for_each(|event| {
        if run.stage.sender.is_none() {
            run.stage.send();
            thread::sleep(BETWEEN);
        }
        run.meet(event).with_context(|| format!("{event:?}"))
    });
    done.with_context(|| format!("FANPCAP_SEED={seed}"))
}

/// Tests that take too long for `make test`.
mod long {
    use super::*;

    #[test]
    #[ignore = "needs root: namespaces, XDP"]
    fn all_at_once_is_in_the_account() {
        netns::within_new(|| run(Engine::Embedded)).unwrap();
    }

    #[test]
    #[ignore = "needs root: namespaces, XDP"]
    fn all_at_once_is_in_the_account_of_etcds_cluster_too() {
        netns::within_new(|| run(Engine::Etcd(1))).unwrap();
    }
}
