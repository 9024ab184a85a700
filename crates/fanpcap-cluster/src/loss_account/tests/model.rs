//! A simulated cluster that records what happens to each packet.
//!
//! Each node switches to a topology at a time of its own. A hung node keeps its old table. The
//! coordinator keeps the rules of decision 30: a union ends some time after all nodes that gain
//! buckets capture.

mod events;
mod truth;

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use fanpcap_buckets::Slot;
use fanpcap_buckets::layout::BUCKETS;
use fanpcap_select::Selection;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

use crate::identity::{NodeId, Revision};
use crate::loss_account::{Beacon, Counts, Ledger, LedgerSettings, Report, Summary};
use crate::topology::{NodeEntry, Topology};

pub(super) const SECOND: u64 = 1_000_000_000;
const STEP: u64 = SECOND / 50;
const SKEW: u64 = SECOND / 5;
const START: u64 = 1_000 * SECOND;
/// How many buckets have packets.
const USED: usize = 5;
/// After this time without reports, a node counts as dead.
const OFFLINE: u64 = 5 * SECOND;

/// Owners of each used bucket, and in a union the new owners.
#[derive(Clone, Copy)]
struct Table {
    revision: u64,
    epoch: u64,
    owners: [usize; USED],
    new_owners: [usize; USED],
}

impl Table {
    fn has(&self, at: usize, bucket: usize) -> bool {
        self.owners[bucket] == at || self.new_owners[bucket] == at
    }
}

#[derive(Clone, Copy)]
enum Frame {
    /// A packet's bucket, and the packet's number.
    Packet(usize, usize),
    /// A beacon's number. Every eighth beacon sets the nodes' round-robin counters to 0.
    Beacon(u64),
}

struct Node {
    id: NodeId,
    runs: bool,
    since: u64,
    seen: Box<Counts>,
    captured: Box<Counts>,
    ring: u64,
    /// How much the node's clock is ahead.
    ahead: u64,
    loss: u64,
    blind: u64,
    /// Frames on their way to the node's counters, each with the time when it arrives.
    in_flight: VecDeque<(u64, Frame)>,
    beacon: Beacon,
    /// The node's round-robin counter.
    turn: usize,
    /// The node sends no reports until this time.
    silent: u64,
    /// The node gets no topologies until this time.
    hung: u64,
    /// The table that the node uses. `news` has later tables, each with the time at which the node
    /// loads it.
    table: Option<Table>,
    news: VecDeque<(u64, Table)>,
    /// The revision in the node's last report.
    reported: u64,
    heard: u64,
    is_ended: bool,
    /// Whether the node joined, died or hung while packets came, or its port lost a packet.
    is_faulty: bool,
    next: u64,
}

pub(super) struct Model {
    random: Pcg64Mcg,
    now: u64,
    nodes: Vec<Node>,
    table: Table,
    /// The present coordinator's term.
    term: u64,
    /// All tables up to the present one.
    tables: Vec<Table>,
    /// The analyzer reads no topology.
    is_cut: bool,
    analyzed: bool,
    /// The round-robin counter of a node that misses no packet; `None` without round robin.
    turn: Option<usize>,
    offered: Vec<(u64, usize)>,
    /// The account may be uncertain in these buckets, for packets of these times.
    doubts: Vec<([bool; USED], RangeInclusive<u64>)>,
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
        let owners = std::array::from_fn(|bucket| bucket % nodes);
        let table = Table {
            revision: 1,
            epoch: 1,
            owners,
            new_owners: owners,
        };
        let mut model = Self {
            random: Pcg64Mcg::seed_from_u64(seed),
            now: START,
            nodes: Vec::new(),
            table,
            term: 0,
            tables: vec![table],
            is_cut: false,
            analyzed,
            turn: None,
            offered: Vec::new(),
            doubts: Vec::new(),
            captures: Vec::new(),
            taken: Vec::new(),
            ledger: Ledger::new(settings),
        };
        (0..nodes).for_each(|_| model.join());
        model.run(2 * SECOND, false);
        model
    }

    /// Captures packets in turn from now on.
    pub(super) fn take_turns(&mut self) {
        self.turn = Some(0);
        self.ledger.set_in_turn(true);
        // Waits until it is certain that no node is out of turn.
        self.run(25 * SECOND, false);
    }

    pub(super) fn lose(&mut self, node: usize, thousandths: u64) {
        self.nodes[node].loss = thousandths;
        self.nodes[node].is_faulty |= thousandths > 0;
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random.next_u64() % below
    }

    fn join(&mut self) {
        let ahead = self.draw(SKEW / 2);
        self.nodes.push(Node {
            id: NodeId(u32::try_from(self.nodes.len()).unwrap()),
            runs: true,
            since: self.now + ahead,
            seen: Box::new([0; BUCKETS]),
            captured: Box::new([0; BUCKETS]),
            ring: 0,
            ahead,
            loss: 0,
            blind: 0,
            in_flight: VecDeque::new(),
            beacon: Beacon::default(),
            turn: 0,
            silent: 0,
            hung: 0,
            table: Some(self.table),
            news: VecDeque::new(),
            reported: self.table.revision,
            heard: self.now,
            is_ended: false,
            is_faulty: false,
            next: 0,
        });
    }

    pub(super) fn run(&mut self, time: u64, packets: bool) {
        let until = self.now + time;
        while self.now < until {
            self.now += STEP;
            for node in self.nodes.iter_mut().filter(|node| node.runs) {
                let now = self.now;
                while node.news.front().is_some_and(|(due, _)| *due <= now) {
                    node.table = node.news.pop_front().map(|(_, table)| table);
                }
            }
            let count = if packets { self.draw(12) } else { 0 };
            (0..count).for_each(|_| self.offer());
            if self.now % SECOND == 0 && !self.is_cut {
                self.look();
            }
            if self.turn.is_some() && self.now % SECOND == 0 {
                self.beacon(self.now / SECOND);
            }
            self.count();
            self.report();
        }
    }

    /// An analyzer reads the topology now and then, so it may miss a topology.
    fn look(&mut self) {
        let entry = |node| NodeEntry {
            slot: Slot(u8::try_from(node).unwrap()),
            node: NodeId(u32::try_from(node).unwrap()),
            weight: 1,
        };
        let slot = |node: usize| Some(Slot(u8::try_from(node).unwrap()));
        let owners = |nodes: [usize; USED]| {
            let owner = |bucket: usize| nodes.get(bucket).map_or(Some(Slot(0)), |it| slot(*it));
            Box::new(std::array::from_fn(owner))
        };
        let Table {
            revision,
            epoch,
            owners: old,
            new_owners: new,
        } = self.table;
        let topology = Topology {
            epoch,
            selection: Selection::default(),
            nodes: (0..self.nodes.len()).map(entry).collect(),
            owners: owners(old),
            new_owners: (old != new).then(|| owners(new)),
            analyzers: Vec::new(),
            filter: None,
        };
        self.ledger.add_topology(Revision(revision), topology);
    }

    fn offer(&mut self) {
        let bucket = match &mut self.turn {
            None => usize::try_from(self.draw(USED as u64)).unwrap(),
            Some(turn) => {
                *turn += 1;
                (*turn - 1) % USED
            }
        };
        let number = self.offered.len();
        self.offered.push((self.now, bucket));
        self.taken.push(0);
        self.send(Frame::Packet(bucket, number));
    }

    fn beacon(&mut self, sequence: u64) {
        if sequence % 8 == 0 {
            self.turn = Some(0);
        }
        self.send(Frame::Beacon(sequence));
    }

    /// Mirrors a frame to all ports. With round robin, all ports have the frames in the same order.
    fn send(&mut self, frame: Frame) {
        for at in 0..self.nodes.len() {
            let (lost, delay) = (self.draw(1000), self.draw(SKEW / 2));
            let (now, in_turn) = (self.now, self.turn.is_some());
            let node = &mut self.nodes[at];
            let last = node.in_flight.back().filter(|_| in_turn);
            let due = last.map_or(0, |(due, _)| *due).max(now + delay);
            if node.runs && lost >= node.loss && node.blind <= now {
                node.in_flight.push_back((due, frame));
            }
        }
    }

    /// Adds the frames that have arrived to the nodes' counters.
    fn count(&mut self) {
        for at in 0..self.nodes.len() {
            let in_flight = std::mem::take(&mut self.nodes[at].in_flight);
            for (due, frame) in in_flight {
                if due > self.now {
                    self.nodes[at].in_flight.push_back((due, frame));
                } else if self.nodes[at].runs {
                    match frame {
                        Frame::Packet(bucket, number) => self.arrive(at, bucket, number),
                        Frame::Beacon(sequence) => self.nodes[at].hear(sequence, self.now),
                    }
                }
            }
        }
    }

    fn arrive(&mut self, at: usize, bucket: usize, number: usize) {
        let bucket = match self.turn {
            None => bucket,
            Some(_) => self.nodes[at].take_turn(),
        };
        // There is a ring only in capture mode, because in distribution mode packets pass to the
        // host.
        let full = self.analyzed && self.draw(40) == 0;
        let node = &mut self.nodes[at];
        node.seen[bucket] += 1;
        if !node.table.is_some_and(|table| table.has(at, bucket)) {
            return;
        }
        if full {
            node.ring += 1;
            return;
        }
        node.captured[bucket] += 1;
        let taken = &mut self.taken[number];
        *taken += 1;
        self.captures.push((self.now, bucket));
        if *taken > 1 && self.analyzed {
            let doubles = self.doubles_of(bucket);
            self.ledger
                .set_doubles(bucket, u64::try_from(doubles).unwrap());
        }
    }

    fn report(&mut self) {
        for at in 0..self.nodes.len() {
            let pause = SECOND / 2 + self.draw(SECOND / 2);
            let now = self.now;
            let node = &mut self.nodes[at];
            if !node.runs || now < node.next.max(node.silent) {
                continue;
            }
            node.next = now + pause;
            (node.heard, node.is_ended) = (now, false);
            let report = node.report(now);
            node.reported = report.summary.revision.0;
            self.ledger.take(report).unwrap();
        }
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            if node.runs && !node.is_ended && node.heard + OFFLINE < self.now {
                self.end(at);
                self.nodes[at].runs = true;
            }
        }
        if self.now % (SECOND / 2) == 0 {
            self.ledger.settle();
        }
    }
}

impl Node {
    fn hear(&mut self, sequence: u64, now: u64) {
        let seen = now + self.ahead;
        self.beacon = Beacon { sequence, seen };
        if sequence % 8 == 0 {
            self.turn = 0;
        }
    }

    /// The bucket of the next packet.
    fn take_turn(&mut self) -> usize {
        self.turn += 1;
        (self.turn - 1) % USED
    }

    fn report(&self, now: u64) -> Report {
        let summary = Summary {
            node: self.id,
            boot: 1,
            since: self.since,
            stamp: now + self.ahead,
            revision: Revision(self.table.map_or(0, |table| table.revision)),
            ring: self.ring,
            beacon: self.beacon,
        };
        Report {
            summary,
            seen: self.seen.clone(),
            captured: self.captured.clone(),
        }
    }
}
