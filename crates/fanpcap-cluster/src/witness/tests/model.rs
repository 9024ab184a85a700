//! A cluster whose packets are known one by one.

use std::collections::VecDeque;

use fanpcap_buckets::layout::BUCKETS;
use proptest::prelude::*;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

use crate::identity::{NodeId, Revision};
use crate::witness::{Beacon, Counts, Ledger, LedgerSettings, Report, Span, Summary};

pub(super) const SECOND: u64 = 1_000_000_000;
const STEP: u64 = SECOND / 50;
const SKEW: u64 = SECOND / 5;
const START: u64 = 1_000 * SECOND;
/// Buckets that have packets.
const USED: usize = 5;

/// What befalls a cluster.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    Join,
    /// A node's counters begin anew.
    Restart(u8),
    /// A node dies; its buckets go to the first node three seconds later.
    Die(u8),
    /// All buckets of a node go to another, through a union.
    Move(u8, u8),
    Rest,
    /// The node's counters are taken over by another agent: a pause in its reports.
    Pause(u8),
}

impl Fate {
    pub(super) fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            Just(Self::Join),
            any::<u8>().prop_map(Self::Restart),
            any::<u8>().prop_map(Self::Die),
            any::<(u8, u8)>().prop_map(|(from, to)| Self::Move(from, to)),
            Just(Self::Rest),
            any::<u8>().prop_map(Self::Pause),
        ]
    }
}

struct Node {
    id: NodeId,
    lives: bool,
    since: u64,
    seen: Box<Counts>,
    captured: Box<Counts>,
    ring: u64,
    marked: u64,
    /// The node's clock is ahead by so much.
    ahead: u64,
    loss: u64,
    /// Packets on their way to its counters: when they arrive, and which.
    way: VecDeque<(u64, usize, u64)>,
    /// No reports until then.
    silent: u64,
    next: u64,
}

pub(super) struct Model {
    random: Pcg64Mcg,
    now: u64,
    nodes: Vec<Node>,
    /// Owners of each used bucket, and in a union the heirs.
    owners: [usize; USED],
    heirs: Option<[usize; USED]>,
    analyzed: bool,
    plain: bool,
    offered: Vec<(u64, usize)>,
    /// When each copy was captured, and in which bucket.
    captures: Vec<(u64, usize)>,
    taken: Vec<u8>,
    pub(super) ledger: Ledger,
}

impl Model {
    pub(super) fn new(seed: u64, nodes: usize, analyzed: bool) -> Self {
        let settings = LedgerSettings {
            skew: SKEW,
            begin: START,
            analyzed,
        };
        let mut model = Self {
            random: Pcg64Mcg::seed_from_u64(seed),
            now: START,
            nodes: Vec::new(),
            owners: std::array::from_fn(|bucket| bucket % nodes),
            heirs: None,
            analyzed,
            plain: true,
            offered: Vec::new(),
            captures: Vec::new(),
            taken: Vec::new(),
            ledger: Ledger::new(settings),
        };
        (0..nodes).for_each(|_| model.join());
        model.run(2 * SECOND, false);
        model
    }

    pub(super) fn lose(&mut self, node: usize, thousandths: u64) {
        self.nodes[node].loss = thousandths;
    }

    /// Whether neither a death nor a union made a span of anything.
    pub(super) fn is_plain(&self) -> bool {
        self.plain
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random.next_u64() % below
    }

    fn join(&mut self) {
        let ahead = self.draw(SKEW / 2);
        self.nodes.push(Node {
            id: NodeId(u32::try_from(self.nodes.len()).unwrap()),
            lives: true,
            since: self.now + ahead,
            seen: Box::new([0; BUCKETS]),
            captured: Box::new([0; BUCKETS]),
            ring: 0,
            marked: 0,
            ahead,
            loss: 0,
            way: VecDeque::new(),
            silent: 0,
            next: 0,
        });
    }

    pub(super) fn meet(&mut self, fate: Fate) {
        // The first node stays and loses nothing: a packet that no port gave is in no count.
        let others = |which: u8, nodes: usize| 1 + usize::from(which) % (nodes - 1).max(1);
        let at = |which| others(which, self.nodes.len());
        match fate {
            Fate::Join => self.join(),
            Fate::Restart(which) => self.restart(at(which)),
            Fate::Die(which) => self.die(at(which)),
            Fate::Move(from, to) => self.shift(at(from), usize::from(to) % self.nodes.len()),
            Fate::Rest => self.run(3 * SECOND, false),
            Fate::Pause(which) => {
                let at = at(which);
                if let Some(node) = self.nodes.get_mut(at) {
                    node.silent = self.now + 4 * SECOND;
                }
            }
        }
    }

    /// As after a reboot. What the node captured after its last report is known, as in `die`.
    fn restart(&mut self, at: usize) {
        if self.nodes.get(at).is_none_or(|node| !node.lives) {
            return;
        }
        self.end(at);
        let now = self.now;
        let node = &mut self.nodes[at];
        node.way.clear();
        node.since = now + node.ahead;
        *node.seen = [0; BUCKETS];
        *node.captured = [0; BUCKETS];
        (node.ring, node.marked) = (0, 0);
        node.lives = true;
    }

    fn end(&mut self, at: usize) {
        let exactly = |count: u64| Span::exactly(i64::try_from(count).unwrap());
        let captured = self
            .analyzed
            .then(|| Box::new(self.nodes[at].captured.map(exactly)));
        self.plain &= self.analyzed;
        let node = &mut self.nodes[at];
        // It may have had any bucket since its last report: buckets move.
        self.ledger
            .end(node.id, self.now + node.ahead, captured, |_| true);
        node.lives = false;
    }

    fn die(&mut self, at: usize) {
        if self.nodes.get(at).is_none_or(|node| !node.lives) {
            return;
        }
        self.nodes[at].lives = false;
        self.run(3 * SECOND, true);
        self.nodes[at].lives = true;
        self.end(at);
        for owner in &mut self.owners {
            *owner = if *owner == at { 0 } else { *owner };
        }
    }

    fn shift(&mut self, from: usize, to: usize) {
        let lives = |at: usize| self.nodes.get(at).is_some_and(|node| node.lives);
        if !lives(from) || !lives(to) {
            return;
        }
        self.plain &= self.analyzed;
        self.heirs = Some(
            self.owners
                .map(|owner| if owner == from { to } else { owner }),
        );
        self.run(SECOND / 2, true);
        self.owners = self.heirs.take().unwrap();
    }

    pub(super) fn run(&mut self, time: u64, packets: bool) {
        let until = self.now + time;
        while self.now < until {
            self.now += STEP;
            let count = if packets { self.draw(12) } else { 0 };
            (0..count).for_each(|_| self.offer());
            self.count();
            self.report();
        }
    }

    fn offer(&mut self) {
        let bucket = usize::try_from(self.draw(USED as u64)).unwrap();
        let number = self.offered.len() as u64;
        self.offered.push((self.now, bucket));
        self.taken.push(0);
        for at in 0..self.nodes.len() {
            let (lost, delay) = (self.draw(1000), self.draw(SKEW / 2));
            let now = self.now;
            let node = &mut self.nodes[at];
            if node.lives && lost >= node.loss {
                node.way.push_back((now + delay, bucket, number));
            }
        }
    }

    /// Packets reach the nodes' counters.
    fn count(&mut self) {
        for at in 0..self.nodes.len() {
            let way = std::mem::take(&mut self.nodes[at].way);
            for (due, bucket, number) in way {
                if due > self.now {
                    self.nodes[at].way.push_back((due, bucket, number));
                } else if self.nodes[at].lives {
                    self.arrive(at, bucket, number);
                }
            }
        }
    }

    fn arrive(&mut self, at: usize, bucket: usize, number: u64) {
        let full = self.draw(40) == 0;
        let owner = self.owners[bucket];
        let heir = self.heirs.map_or(owner, |heirs| heirs[bucket]);
        let node = &mut self.nodes[at];
        node.seen[bucket] += 1;
        if owner != at && heir != at {
            return;
        }
        if full {
            node.ring += 1;
            return;
        }
        node.captured[bucket] += 1;
        node.marked += u64::from(owner != heir);
        let taken = &mut self.taken[usize::try_from(number).unwrap()];
        *taken += 1;
        self.captures.push((self.now, bucket));
        if *taken > 1 && self.analyzed {
            let doubles = self.doubles_of(bucket);
            self.ledger.doubles(bucket, u64::try_from(doubles).unwrap());
        }
    }

    fn report(&mut self) {
        for at in 0..self.nodes.len() {
            let pause = SECOND / 2 + self.draw(SECOND / 2);
            let now = self.now;
            let node = &mut self.nodes[at];
            if !node.lives || now < node.next.max(node.silent) {
                continue;
            }
            node.next = now + pause;
            let report = node.report(now);
            self.ledger.take(report).unwrap();
        }
        if self.now % (SECOND / 2) == 0 {
            self.ledger.settle();
        }
    }

    /// What the ledger says holds the truth, at the time that it says it of.
    pub(super) fn check(&self) {
        let account = self.ledger.account();
        let until = |list: &[(u64, usize)], bucket: usize| {
            let there = list
                .iter()
                .filter(|item| item.0 <= account.time && item.1 == bucket);
            i64::try_from(there.count()).unwrap()
        };
        for bucket in 0..USED {
            let row = account.buckets[bucket];
            let offered = until(&self.offered, bucket);
            let captured = until(&self.captures, bucket);
            let say = || format!("{row:?}, offered {offered}, captured {captured}");
            assert!(
                row.offered.least <= offered && offered <= row.offered.most,
                "{}",
                say()
            );
            assert!(
                row.captured.least <= captured && captured <= row.captured.most,
                "{}",
                say()
            );
        }
    }

    fn doubles_of(&self, bucket: usize) -> i64 {
        let taken = self.taken.iter().zip(&self.offered);
        let of_bucket = taken.filter(|(_, offered)| offered.1 == bucket);
        of_bucket
            .map(|(&taken, _)| i64::from(taken.saturating_sub(1)))
            .sum()
    }

    pub(super) fn doubles(&self) -> i64 {
        (0..USED).map(|bucket| self.doubles_of(bucket)).sum()
    }

    pub(super) fn lost(&self) -> i64 {
        i64::try_from(self.taken.iter().filter(|&&taken| taken == 0).count()).unwrap()
    }
}

impl Node {
    fn report(&self, now: u64) -> Report {
        let summary = Summary {
            node: self.id,
            boot: 1,
            since: self.since,
            stamp: now + self.ahead,
            revision: Revision(1),
            ring: self.ring,
            marked: self.marked,
            beacon: Beacon::default(),
        };
        Report {
            summary,
            seen: self.seen.clone(),
            captured: self.captured.clone(),
        }
    }
}
