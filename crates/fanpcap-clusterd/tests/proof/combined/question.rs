//! Which packets the account may show as uncertain: packets that came during a change or a fault,
//! in a bucket that a faulty node had.

use std::collections::BTreeSet;
use std::ops::Range;

use fanpcap_buckets::layout::BUCKETS;

use crate::owners::Owners;
use crate::stage::id;

/// One flag for each bucket.
type Flags = Vec<bool>;

/// The buckets that a change concerns, and the numbers of the packets that came during the change.
struct Change {
    buckets: Flags,
    numbers: Range<u64>,
    /// The part of the run in which the change was.
    part: usize,
    /// Whether a node died. The last packets that the dead node captured stay unknown.
    is_death: bool,
}

/// The packets of a bucket that may be uncertain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Doubtful {
    /// How many packets may be uncertain.
    pub(super) packets: i64,
    /// Like `packets`, but a packet that several dead nodes may have captured counts once for each.
    pub(super) captures: i64,
}

/// The changes of the test run so far. Each pause in the traffic ends a part of the run. A fault
/// makes only packets after the last pause uncertain.
#[derive(Default)]
pub(super) struct Question {
    changes: Vec<Change>,
    /// For each node, the buckets that the node has had since the last pause in the traffic.
    had: Vec<Flags>,
    /// Nodes that did not capture or receive all packets since the last pause in the traffic.
    faulty: BTreeSet<usize>,
    /// Buckets that dead nodes had. The last packets that these nodes captured stay unknown.
    dead: Flags,
    /// For each ended part of the run, the buckets that are in question because of a fault.
    uncertain: Vec<Flags>,
}

impl Question {
    /// Notes that each node now has the buckets that `owners` gives it.
    pub(super) fn own(&mut self, owners: &Owners, nodes: usize) {
        self.had.resize_with(nodes, || vec![false; BUCKETS]);
        for (node, had) in self.had.iter_mut().enumerate() {
            let name = id(node);
            for (owner, had) in owners.iter().zip(had) {
                *had |= owner.as_deref() == Some(&name);
            }
        }
    }

    /// Notes that buckets moved from the owners `from` to the owners `to`, while packets with these
    /// numbers came.
    pub(super) fn moved(&mut self, from: &Owners, to: &Owners, numbers: Range<u64>) {
        let moved = from.iter().zip(to).map(|(from, to)| from != to);
        self.note(moved.collect(), numbers);
    }

    /// Notes that a node was dead, hung or blind, or joined, while packets with these numbers came.
    /// Of these packets, those in the buckets that the node then had (`owners`) are in question.
    /// The node may have had other buckets before or after. Of the packets in these buckets, only
    /// those that came while the bucket moved are in question.
    pub(super) fn fault(&mut self, node: usize, owners: &Owners, numbers: Range<u64>) {
        let name = Some(id(node));
        let own = owners.iter().map(|owner| *owner == name);
        self.note(own.collect(), numbers);
        self.faulty.insert(node);
    }

    fn note(&mut self, buckets: Flags, numbers: Range<u64>) {
        self.changes.push(Change {
            buckets,
            numbers,
            part: self.uncertain.len(),
            is_death: false,
        });
    }

    /// Notes that a node died and does not return. The buckets that the node had stay uncertain in
    /// all later parts of the run.
    pub(super) fn death(&mut self, node: usize, owners: &Owners, numbers: Range<u64>) {
        self.fault(node, owners, numbers);
        if let Some(change) = self.changes.last_mut() {
            change.is_death = true;
        }
        self.dead.resize(BUCKETS, false);
        for (dead, had) in self.dead.iter_mut().zip(&self.had[node]) {
            *dead |= had;
        }
    }

    /// Ends the present part of the run. In the next part, each bucket begins with its owner in
    /// `owners`.
    pub(super) fn end_part(&mut self, owners: &Owners) {
        let mut uncertain = self.dead.clone();
        uncertain.resize(BUCKETS, false);
        for node in std::mem::take(&mut self.faulty) {
            for (uncertain, had) in uncertain.iter_mut().zip(&self.had[node]) {
                *uncertain |= had;
            }
        }
        self.uncertain.push(uncertain);
        let nodes = std::mem::take(&mut self.had).len();
        self.own(owners, nodes);
    }

    /// For each bucket, how many packets are in question in the parts that have ended. `buckets`
    /// has the bucket of each packet that was sent.
    pub(super) fn doubtful(&self, buckets: &[usize]) -> Vec<Doubtful> {
        let mut rows = vec![Doubtful::default(); BUCKETS];
        let is_uncertain = |change: &&Change, bucket: usize| {
            let part = self.uncertain.get(change.part);
            change.buckets[bucket] && part.is_some_and(|part| part[bucket])
        };
        for (number, bucket) in buckets.iter().enumerate() {
            let number = number as u64;
            let changes = self.changes.iter();
            let then = changes.filter(|it| it.numbers.contains(&number));
            let then = then.filter(|it| is_uncertain(it, *bucket));
            let deaths = then.clone().filter(|it| it.is_death).count() as i64;
            let is_in = i64::from(then.count() > 0);
            rows[*bucket].packets += is_in;
            rows[*bucket].captures += deaths.max(is_in);
        }
        rows
    }
}

#[test]
fn packets_of_moved_buckets_are_in_question_where_a_node_is_faulty() {
    let owners = |first: usize, second: usize| {
        let mut owners: Owners = vec![Some(id(2)); BUCKETS];
        (owners[0], owners[1]) = (Some(id(first)), Some(id(second)));
        owners
    };
    let buckets: Vec<usize> = (0..20).map(|number| number % 2).collect();
    let packets = |question: &Question| {
        let rows = question.doubtful(&buckets);
        [0, 1].map(|bucket| rows[bucket].packets)
    };
    let mut question = Question::default();
    question.own(&owners(0, 1), 3);
    question.moved(&owners(0, 1), &owners(2, 2), 0..4);
    question.end_part(&owners(2, 2));
    assert_eq!(packets(&question), [0, 0]);
    question.moved(&owners(2, 2), &owners(0, 1), 8..12);
    question.own(&owners(0, 1), 3);
    question.fault(0, &owners(0, 1), 10..14);
    question.end_part(&owners(0, 1));
    assert_eq!(packets(&question), [3, 0]);
    question.moved(&owners(0, 1), &owners(2, 2), 16..20);
    question.death(0, &owners(0, 1), 18..20);
    question.end_part(&owners(2, 2));
    assert_eq!(packets(&question), [5, 0]);
    question.death(2, &owners(2, 1), 22..26);
    question.death(1, &owners(1, 1), 24..28);
    question.end_part(&owners(2, 2));
    let buckets: Vec<usize> = (0..30).map(|number| number % 2).collect();
    let row = question.doubtful(&buckets)[0];
    assert_eq!((row.packets, row.captures), (8, 9));
}
