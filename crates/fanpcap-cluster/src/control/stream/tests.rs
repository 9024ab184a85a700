//! Nodes accept the frames that [`FrameSender`] makes, even if the clocks differ.

use std::net::{Ipv4Addr, SocketAddr};

use fanpcap_buckets::Slot;
use fanpcap_buckets::layout::BUCKETS;
use fanpcap_select::Selection;
use fanpcap_select::in_line::{Announced, InLine};
use proptest::prelude::*;

use super::*;
use crate::coordination::{Announcement, LiveNode};
use crate::identity::NodeId;
use crate::topology::{NodeEntry, Topology};

fn numbers(secret: u8) -> FrameNumbers {
    FrameNumbers::new(vec![secret; 32], ClusterId::of_name("lab"))
}

/// A cluster of two nodes that capture packets in turn, with the topology 9.
fn view() -> View {
    let live = |node| LiveNode {
        announcement: Announcement {
            node: NodeId(node),
            boot: 1,
            weight: 1,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
            setup: None,
        },
        acknowledged: Some(Revision(9)),
    };
    let entry = |slot, node| NodeEntry {
        slot: Slot(slot),
        node: NodeId(node),
        weight: 1,
    };
    let mut owners = Box::new([Some(Slot(0)); BUCKETS]);
    owners[1] = Some(Slot(1));
    let topology = Topology {
        epoch: 1,
        selection: Selection {
            key: SelectionKey::RoundRobin,
            initial: 0,
        },
        nodes: vec![entry(0, 1), entry(1, 2), entry(2, 3)],
        owners,
        new_owners: None,
        analyzers: Vec::new(),
        filter: None,
    };
    View {
        leads: true,
        live: vec![live(1), live(2)],
        topology: Some((Revision(9), Box::new(topology))),
        ..View::default()
    }
}

fn kinds(due: &[DueFrame]) -> Vec<(Kind, u64)> {
    due.iter().map(|due| (due.kind, due.sequence)).collect()
}

/// Returns whether a BPF program with these announcements accepts the frame.
fn take(announced: &mut Announced, due: &DueFrame) -> bool {
    let frame = InLine {
        kind: due.kind,
        cluster: 0,
        sequence: due.sequence,
        time_ns: 0,
        number: due.number,
    };
    announced.take(Some(due.kind), &frame)
}

fn announce(announced: &mut Announced, due: Vec<DueFrame>) {
    for due in due {
        announced.announce(due.kind, due.sequence, due.number);
    }
}

#[test]
fn a_number_says_all_that_it_is_for() {
    let all = [
        numbers(1).of(Kind::Beacon, Revision(0), 7),
        numbers(1).of(Kind::Beacon, Revision(0), 8),
        numbers(1).of(Kind::Update, Revision(0), 7),
        numbers(1).of(Kind::Update, Revision(1), 7),
        numbers(2).of(Kind::Beacon, Revision(0), 7),
        FrameNumbers::new(vec![1; 32], ClusterId::of_name("other")).of(
            Kind::Beacon,
            Revision(0),
            7,
        ),
    ];
    let different: BTreeSet<u64> = all.into_iter().collect();
    assert_eq!(different.len(), all.len());
    let same = numbers(1).of(Kind::Beacon, Revision(5), 7);
    assert_eq!(same, all[0], "a beacon is recognized with any topology");
}

#[test]
fn an_update_is_sent_once_all_wait_for_it_and_again_later() {
    let mut sender = FrameSender::new(numbers(1));
    let mut view = view();
    view.live[1].acknowledged = Some(Revision(8));
    assert_eq!(kinds(&sender.due(&view, 100)), [(Kind::Beacon, 100)]);
    assert_eq!(kinds(&sender.due(&view, 100)), []);
    view.live[1].acknowledged = Some(Revision(9));
    assert_eq!(kinds(&sender.due(&view, 100)), [(Kind::Update, 100)]);
    for now in 101..108 {
        assert_eq!(kinds(&sender.due(&view, now)), [(Kind::Beacon, now)]);
    }
    let both = [(Kind::Beacon, 108), (Kind::Update, 108)];
    assert_eq!(kinds(&sender.due(&view, 108)), both);
    // A standby sends no frames. A leader whose clock was set back sends none either.
    assert_eq!(sender.behind(108), 0);
    assert_eq!(kinds(&sender.due(&view, 50)), []);
    assert_eq!(sender.behind(50), 58);
    view.leads = false;
    assert_eq!(kinds(&sender.due(&view, 200)), []);
}

#[test]
fn a_union_does_not_wait_for_the_dead_and_other_keys_need_no_update() {
    let mut view = view();
    view.live.pop();
    assert_eq!(awaited(&view), None, "the kernel may still capture");
    let (_, topology) = view.topology.as_mut().unwrap();
    topology.new_owners = Some(Box::new([Some(Slot(0)); BUCKETS]));
    assert_eq!(awaited(&view), Some(Revision(9)));
    let (_, topology) = view.topology.as_mut().unwrap();
    topology.selection.key = SelectionKey::Packet;
    assert_eq!(awaited(&view), None);
}

#[test]
fn a_topologys_update_is_known_to_those_that_wait_for_it_alone() {
    let (mut sender, view) = (FrameSender::new(numbers(1)), view());
    let due = sender.due(&view, 500);
    let [beacon, update] = due.as_slice() else {
        panic!("{due:?}");
    };
    for (revision, is_known) in [(8, false), (9, true)] {
        let mut announced = Announced::default();
        let mut listener = FrameListener::new(vec![numbers(1)]);
        announce(&mut announced, listener.due(480, None, Revision(8)));
        announce(&mut announced, listener.due(480, None, Revision(revision)));
        assert!(take(&mut announced, beacon));
        assert_eq!(take(&mut announced, update), is_known);
        assert!(!take(&mut announced, update), "replayed");
        let heard = HeardBeacon {
            sequence: 500,
            ago: Duration::ZERO,
        };
        let more = listener.due(481, Some(heard), Revision(revision));
        announce(&mut announced, more);
        assert!(!take(&mut announced, beacon) && !take(&mut announced, update));
    }
}

#[test]
fn an_update_that_was_lost_is_not_taken_later() {
    let (mut sender, view) = (FrameSender::new(numbers(1)), view());
    let mut announced = Announced::default();
    let mut listener = FrameListener::new(vec![numbers(1)]);
    announce(&mut announced, listener.due(499, None, Revision(9)));
    let mut lost = Vec::new();
    for now in 500..520 {
        for due in sender.due(&view, now) {
            match due.kind {
                Kind::Beacon => assert!(take(&mut announced, &due)),
                Kind::Update => lost.push(due),
            }
        }
        let heard = HeardBeacon {
            sequence: now,
            ago: Duration::ZERO,
        };
        announce(&mut announced, listener.due(now, Some(heard), Revision(9)));
        // If somebody sends a lost update again after the next beacon, the update is refused.
        for due in lost.iter().filter(|due| due.sequence < now) {
            assert!(!take(&mut announced, due), "replayed at {now}: {due:?}");
        }
    }
    assert_eq!(lost.len(), 3);
    let due = sender.due(&view, 524);
    for due in due {
        assert!(take(&mut announced, &due), "{due:?}");
    }
}

#[test]
fn the_other_key_is_tried_while_no_beacon_comes() {
    let mut listener = FrameListener::new(vec![numbers(1), numbers(2)]);
    let mut announced = Announced::default();
    let mut sender = FrameSender::new(numbers(2));
    let taken = (600..612).filter(|now| {
        announce(&mut announced, listener.due(*now, None, Revision(1)));
        sender
            .due(&view(), *now)
            .iter()
            .any(|due| take(&mut announced, due))
    });
    assert_eq!(taken.count(), 6);
    assert!(!FrameListener::new(Vec::new()).is_able());
}

#[test]
fn keys_change_while_beacons_go_on() {
    let (old, new) = (numbers(1), numbers(2));
    let mut listener = FrameListener::new(vec![old.clone()]);
    let mut sender = FrameSender::new(old.clone());
    let mut announced = Announced::default();
    let mut heard = None;
    let both = || vec![old.clone(), new.clone()];
    let missed = (700..800_u64).filter(|now| {
        match now {
            710 => listener.set_numbers(both()),
            720 => listener.set_numbers(both().into_iter().rev().collect()),
            730 => sender.set_numbers(new.clone()),
            750 => listener.set_numbers(vec![new.clone()]),
            _ => {}
        }
        let recent = heard.map(|sequence| HeardBeacon {
            sequence,
            ago: Duration::from_secs(now - sequence),
        });
        announce(&mut announced, listener.due(*now, recent, Revision(1)));
        let beacon = sender.due(&view(), *now)[0];
        let is_taken = take(&mut announced, &beacon);
        heard = if is_taken {
            Some(beacon.sequence)
        } else {
            heard
        };
        !is_taken
    });
    let missed: Vec<u64> = missed.collect();
    // At 730 s, the sender changes to the new key. The listener then misses beacons until it tries
    // the new key.
    assert!(
        missed.iter().all(|now| (730..739).contains(now)),
        "{missed:?}"
    );
    // A listener that has only the old key accepts no frame. When the new key replaces the old one,
    // the listener uses the new key at once.
    let mut late = FrameListener::new(vec![old]);
    announce(&mut announced, late.due(800, None, Revision(1)));
    late.set_numbers(vec![new]);
    announce(&mut announced, late.due(800, None, Revision(1)));
    assert!(take(&mut announced, &sender.due(&view(), 800)[0]));
}

proptest! {
    /// Each beacon that comes is accepted exactly once, even if other beacons are lost, the clocks
    /// differ by 28 s, and the agent is gone for 28 s.
    #[test]
    fn beacons_are_taken_once(
        ahead in -28_i64..28,
        gone in 10_u64..28,
        lost in proptest::collection::vec(any::<bool>(), 200),
    ) {
        let mut announced = Announced::default();
        let mut listener = FrameListener::new(vec![numbers(1)]);
        let mut sender = FrameSender::new(numbers(1));
        let view = View { leads: true, ..View::default() };
        let mut heard: Option<(u64, u64)> = None;
        let mut old = Vec::new();
        for (now, is_lost) in (10_000..).zip(lost) {
            let is_gone = (10_050..10_050 + gone).contains(&now);
            if now == 10_050 + gone {
                listener = FrameListener::new(vec![numbers(1)]);
            }
            let own = now.saturating_add_signed(ahead);
            let recent = heard.map(|(sequence, at)| HeardBeacon {
                sequence,
                ago: Duration::from_secs(now - at),
            });
            if !is_gone {
                announce(&mut announced, listener.due(own, recent, Revision(1)));
            }
            for due in &old {
                prop_assert!(!take(&mut announced, due), "replayed: {:?}", due);
            }
            let due = sender.due(&view, now)[0];
            if !is_lost {
                prop_assert!(take(&mut announced, &due), "{} is not known", now);
                heard = Some((due.sequence, now));
                old.push(due);
            }
        }
    }
}
