//! The events of a run. A seed determines their order.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

/// An event in the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// A node gives away all its buckets, and later gets buckets again.
    Drain,
    /// A node gets another weight.
    Weight,
    /// A new node joins.
    Join,
    /// A node's machine dies.
    Die,
    /// A node's agent hangs, while two weights change.
    Hang,
    /// A node's port is blind, while a weight changes.
    Blind,
    /// The sender pauses until the account is exact.
    Rest,
}

/// The number of nodes before the first node joins.
pub(super) const NODES: usize = 3;

/// After a death, at least this many nodes must live. With fewer nodes, the account can't decide
/// which port loses packets.
pub(super) const LEAST: usize = 3;

/// Random numbers that a seed determines.
pub(super) struct Draw(Pcg64Mcg);

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.0.next_u64() % end as u64).unwrap_or(0)
    }

    pub(super) fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// The order of events: a drain, ten weights, three joins, two deaths, a hang and a blind port. The
/// first part has only planned changes, so its account must be exact.
pub(super) fn course(draw: &mut Draw) -> Vec<Event> {
    let mut course = vec![Event::Weight; 4];
    course.insert(draw.below(5), Event::Drain);
    course.push(Event::Rest);
    let mut left = vec![Event::Weight; 3];
    left.extend([Event::Join; 3]);
    left.extend([Event::Die, Event::Die, Event::Hang, Event::Blind]);
    let mut nodes = NODES;
    while !left.is_empty() {
        let at = draw.below(left.len());
        match left[at] {
            Event::Die if nodes == LEAST => continue,
            Event::Die => nodes -= 1,
            Event::Join => nodes += 1,
            Event::Drain | Event::Weight | Event::Hang | Event::Blind | Event::Rest => {}
        }
        course.push(left.remove(at));
        if !left.is_empty() && draw.below(3) == 0 {
            course.push(Event::Rest);
        }
    }
    course.push(Event::Rest);
    course
}

#[test]
fn each_course_has_all_events_and_nodes_enough() {
    for seed in 0..100 {
        let course = course(&mut Draw::new(seed));
        let count = |event| course.iter().filter(|it| **it == event).count();
        let events = [
            Event::Drain,
            Event::Weight,
            Event::Join,
            Event::Die,
            Event::Hang,
            Event::Blind,
        ];
        assert_eq!(events.map(count), [1, 7, 3, 2, 1, 1], "{course:?}");
        let nodes = course.iter().scan(NODES, |nodes, event| {
            match event {
                Event::Join => *nodes += 1,
                Event::Die => *nodes -= 1,
                Event::Drain | Event::Weight | Event::Hang | Event::Blind | Event::Rest => {}
            }
            Some(*nodes)
        });
        assert!(nodes.min() >= Some(LEAST), "{course:?}");
        assert_eq!(course.last(), Some(&Event::Rest));
    }
}
