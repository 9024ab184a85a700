//! The analyzer delivers every packet once, whatever nodes and coordinators do.

mod begin;

use fanpcap_buckets::layout::BUCKETS;
use fanpcap_buckets::{Owners, Slot};
use fanpcap_select::Selection;
use proptest::prelude::*;

use super::*;
use crate::record::{BatchBuilder, Head, Kind};
use crate::topology::NodeEntry;

const MS: u64 = 1_000_000;
const BEGIN: u64 = 1_000_000 * MS;
const SKEW: u64 = 50 * MS;
const OLD: NodeId = NodeId(10);
const NEW: NodeId = NodeId(11);

fn analyzer() -> Analyzer {
    Analyzer::new(AnalyzerSettings {
        cluster: 1,
        hold: 500 * MS,
        skew: SKEW,
        most_held: 64 << 20,
        seed: 7,
        begin: 0,
    })
}

/// A topology of the two nodes. It is a union if there is a `new_owner`.
fn topology(owner: u8, new_owner: Option<u8>) -> Topology {
    let table = |slot| -> Box<Owners> { Box::new([Some(Slot(slot)); BUCKETS]) };
    let entry = |slot, node| NodeEntry {
        slot: Slot(slot),
        node,
        weight: 1,
    };
    Topology {
        epoch: 1,
        selection: Selection::default(),
        nodes: vec![entry(0, OLD), entry(1, NEW)],
        owners: table(owner),
        new_owners: new_owner.map(table),
        analyzers: Vec::new(),
        filter: None,
    }
}

fn node(node: NodeId) -> BatchBuilder {
    BatchBuilder::new(head(node, 1), 300, 1)
}

fn head(node: NodeId, session: u64) -> Head {
    Head {
        kind: Kind::Records,
        length: 0,
        cluster: 1,
        node,
        boot: 1,
        session,
    }
}

fn record(stamp: u64, marked: bool, captured: &[u8]) -> Record<'_> {
    Record {
        stamp,
        wire_length: 60,
        bucket: 9,
        marked,
        captured,
    }
}

/// What the analyzer delivered: the contents, and whether the stamps were in order.
#[derive(Default)]
struct Out {
    contents: Vec<Vec<u8>>,
    stamps: Vec<u64>,
}

impl Out {
    fn put(&mut self, delivered: &Delivered<'_>) {
        self.contents.push(delivered.record.captured.to_vec());
        self.stamps.push(delivered.record.stamp);
    }
}

/// How the buckets get from one node to the other.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Union,
    /// The old node does not get the new topologies, and continues to capture.
    CutOff,
}

/// When each node loads each revision, and when the analyzer gets the revision, in milliseconds.
#[derive(Clone, Debug)]
struct Plan {
    change: Change,
    /// When the new node loads revisions 2 and 3. `old` has the times of the old node.
    new: [u64; 2],
    old: [u64; 2],
    analyzer: [u64; 2],
    /// By how many milliseconds each node's stamps are late.
    late: [u64; 2],
    /// By how many milliseconds each node's batches are late.
    delays: [u64; 2],
    packets: Vec<(u64, u8)>,
}

prop_compose! {
    fn plans()(
        change in prop_oneof![Just(Change::Union), Just(Change::CutOff)],
        gained in 300u64..400,
        stable in prop::array::uniform2(600u64..700),
        lost in 300u64..500,
        analyzer in prop::array::uniform2(0u64..150),
        late in prop::array::uniform2(0u64..20),
        delays in prop::array::uniform2(0u64..100),
        packets in prop::collection::vec((0u64..1000, any::<u8>()), 0..400),
    ) -> Plan {
        let mut packets = packets;
        packets.sort_unstable();
        // Two packets with the same content have the same time, or are more than 80 ms apart, so
        // that the analyzer does not take the second packet for a copy.
        let mut last = [None::<u64>; 256];
        packets.retain(|&(at, content)| {
            let last = &mut last[usize::from(content)];
            let is_apart = last.is_none_or(|last| last == at || last + 80 < at);
            *last = if is_apart { Some(at) } else { *last };
            is_apart
        });
        Plan {
            change,
            new: [gained, stable[0]],
            // The old node loads the union at `lost`, before any node loads the next stable
            // topology.
            old: [lost, stable[1]],
            analyzer: [300 + analyzer[0], 600 + analyzer[1]],
            late,
            delays,
            packets,
        }
    }
}

impl Plan {
    /// The revision and the mark of a packet that the node captures at the millisecond `at`; `None`
    /// if the node does not capture this packet.
    fn captures(&self, node: usize, at: u64) -> Option<(Revision, bool)> {
        if node == 0 {
            match (self.change, at) {
                (Change::CutOff, _) => Some((Revision(1), false)),
                (Change::Union, at) if at < self.old[0] => Some((Revision(1), false)),
                (Change::Union, at) => (at < self.old[1]).then_some((Revision(2), true)),
            }
        } else if at < self.new[0] {
            None
        } else if at < self.new[1] {
            Some((Revision(2), true))
        } else {
            Some((Revision(3), false))
        }
    }
}

/// All batches, in the order in which they come.
fn batches(plan: &Plan) -> Vec<(u64, Vec<u8>)> {
    let mut batches = Vec::new();
    for (index, id) in [OLD, NEW].into_iter().enumerate() {
        let mut builder = node(id);
        let mut window = 0;
        for &(at, content) in &plan.packets {
            // A node sends its waiting records ten times a second.
            if at / 100 != window {
                let come = BEGIN + (100 * (window + 1) + plan.delays[index]) * MS;
                batches.extend(builder.flush().map(|batch| (come, batch)));
                window = at / 100;
            }
            let come = BEGIN + (at + plan.delays[index]) * MS;
            if let Some((revision, marked)) = plan.captures(index, at) {
                let stamp = BEGIN + (at + plan.late[index]) * MS;
                let record = record(stamp, marked, std::slice::from_ref(&content));
                batches.extend(builder.push(revision, &record).map(|batch| (come, batch)));
            }
        }
        let end = BEGIN + (1000 + plan.delays[index]) * MS;
        batches.extend(builder.flush().map(|batch| (end, batch)));
    }
    batches.sort_by_key(|(come, _)| *come);
    batches
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn a_bucket_changes_its_owner_without_a_packet_lost_or_twice(plan in plans()) {
        let mut analyzer = analyzer();
        analyzer.follow(Revision(1), topology(0, None));
        let mut out = Out::default();
        analyzer.know(BEGIN + 299 * MS);
        let mut hears = plan.analyzer.into_iter().zip([(2, Some(1)), (3, None)]);
        let mut next = hears.next();
        for (come, batch) in batches(&plan) {
            while let Some((_, (revision, new_owner))) = next.filter(|(at, _)| BEGIN + at * MS <= come) {
                analyzer.follow(Revision(revision), topology(u8::from(new_owner.is_none()), new_owner));
                analyzer.know(BEGIN + if revision == 2 { 599 } else { 2000 } * MS);
                next = hears.next();
            }
            let batch = Batch::decode(&batch).unwrap();
            analyzer.take(&batch, come).unwrap();
            prop_assert!(analyzer.take(&batch, come).is_err());
            analyzer.release(come, |delivered| out.put(delivered));
        }
        for (_, (revision, new_owner)) in next.into_iter().chain(hears) {
            analyzer.follow(Revision(revision), topology(u8::from(new_owner.is_none()), new_owner));
        }
        analyzer.flush(|delivered| out.put(delivered));
        let mut offered: Vec<_> = plan.packets.iter().map(|(_, content)| vec![*content]).collect();
        offered.sort_unstable();
        prop_assert!(out.stamps.is_sorted());
        out.contents.sort_unstable();
        let counters = analyzer.counters();
        prop_assert_eq!(&out.contents, &offered, "{:?}", counters);
        prop_assert_eq!(counters.received, counters.delivered + counters.doubles + counters.fenced);
        prop_assert_eq!(counters.export_lost, 0);
    }

    #[test]
    fn batches_that_are_lost_are_counted_by_their_records(
        lost in prop::collection::vec(any::<bool>(), 1..60),
    ) {
        let mut analyzer = analyzer();
        let mut builder = node(OLD);
        let packets = (0..lost.len() as u64 * 3).filter_map(|number| {
            builder.push(Revision(1), &record(BEGIN + number, false, &[1; 70]))
        });
        let mut batches: Vec<_> = packets.collect();
        batches.extend(builder.flush());
        // The last batch is never dropped, because no later batch would show that it is missing.
        let last = batches.len() - 1;
        let is_lost = |at: usize| at < last && lost.get(at) == Some(&true);
        let mut missing = 0;
        for (at, bytes) in batches.iter().enumerate() {
            let batch = Batch::decode(bytes).unwrap();
            if is_lost(at) {
                missing += u64::from(batch.len());
            } else {
                analyzer.take(&batch, BEGIN).unwrap();
            }
        }
        prop_assert_eq!(analyzer.counters().export_lost, missing);
    }
}

/// A batch of these records, in a session of its own.
fn batch_of(session: u64, records: &[Record<'_>]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(head(OLD, session), 1400, 1);
    for record in records {
        assert_eq!(builder.push(Revision(1), record), None);
    }
    builder.flush().unwrap()
}

/// A batch of these records.
fn batch(id: NodeId, revision: u64, records: &[Record<'_>]) -> Vec<u8> {
    let mut builder = node(id);
    for record in records {
        assert_eq!(builder.push(Revision(revision), record), None);
    }
    builder.flush().unwrap()
}

#[test]
fn what_a_node_does_not_own_is_refused_and_so_is_an_unknown_topology() {
    let mut analyzer = analyzer();
    analyzer.follow(Revision(5), topology(0, None));
    analyzer.know(BEGIN + 200 * MS);
    let bytes = batch(NEW, 5, &[record(BEGIN, false, b"foreign")]);
    analyzer
        .take(&Batch::decode(&bytes).unwrap(), BEGIN)
        .unwrap();
    let bytes = batch(OLD, 6, &[record(BEGIN, false, b"never")]);
    analyzer
        .take(&Batch::decode(&bytes).unwrap(), BEGIN)
        .unwrap();
    analyzer.release(BEGIN + 600 * MS, |delivered| panic!("{delivered:?}"));
    let counters = analyzer.counters();
    assert_eq!(
        (counters.foreign, counters.unknown, counters.received),
        (1, 1, 2)
    );
}

/// The old node hung when the new node became the owner. The packets that the old node captured
/// before it hung reach the analyzer ten seconds later.
#[test]
fn what_a_node_captured_before_it_hung_is_no_double_of_its_new_owners() {
    let mut analyzer = analyzer();
    let mut out = Out::default();
    let contents: Vec<_> = (0..1000u64).map(u64::to_be_bytes).collect();
    let (mut old, mut new) = (node(OLD), node(NEW));
    let mut send = |analyzer: &mut Analyzer, revision, of: std::ops::Range<u64>, now| {
        let builder = if revision == 1 { &mut old } else { &mut new };
        for at in of {
            let stamp = BEGIN + at * MS;
            let content = at.to_be_bytes();
            let sent = record(stamp, revision == 2, &content);
            builder.push(Revision(revision), &sent);
            let bytes = builder.flush().unwrap();
            let now = if now == 0 { stamp } else { now };
            analyzer.take(&Batch::decode(&bytes).unwrap(), now).unwrap();
            analyzer.release(now, |delivered| out.put(delivered));
        }
    };
    analyzer.follow(Revision(1), topology(0, None));
    send(&mut analyzer, 1, 0..100, 0);
    analyzer.follow(Revision(2), topology(0, Some(1)));
    send(&mut analyzer, 2, 300..450, 0);
    analyzer.follow(Revision(3), topology(1, None));
    // One packet comes right after the union, and the next packet 40 ms later.
    send(&mut analyzer, 3, 450..451, 0);
    send(&mut analyzer, 3, 490..1000, 0);
    let end = BEGIN + 10_000 * MS;
    send(&mut analyzer, 1, 100..450, end);
    send(&mut analyzer, 1, 450..451, end);
    send(&mut analyzer, 1, 490..1000, end);
    analyzer.flush(|delivered| out.put(delivered));
    let mut found = out.contents;
    found.sort();
    let captured = (0..451).chain(490..1000);
    let wanted: Vec<_> = captured.map(|at: usize| contents[at].to_vec()).collect();
    assert!(found == wanted, "{:?}", analyzer.counters());
}

/// The new node skips the topology that gave it the bucket, and begins with the next one. The old
/// node has received neither of these two topologies, and its packets come late.
#[test]
fn the_first_packets_of_an_owner_that_passed_a_topology_over_are_compared_too() {
    let mut analyzer = analyzer();
    let (mut old, mut new) = (node(OLD), node(NEW));
    let mut given = Vec::new();
    for (revision, owner) in [(1, 0), (2, 1), (3, 1)] {
        analyzer.follow(Revision(revision), topology(owner, None));
    }
    let mut send = |revision, of: std::ops::Range<u64>, now: u64| {
        let builder = if revision == 1 { &mut old } else { &mut new };
        for at in of {
            let content = at.to_be_bytes();
            let sent = record(BEGIN + at * MS, false, &content);
            assert_eq!(builder.push(Revision(revision), &sent), None);
        }
        let bytes = builder.flush().unwrap();
        let now = BEGIN + now * MS;
        analyzer.take(&Batch::decode(&bytes).unwrap(), now).unwrap();
        analyzer.release(now + 600 * MS, |it| given.push(it.record.captured.to_vec()));
    };
    send(3, 300..310, 310);
    send(3, 310..320, 2000);
    for from in [290, 300, 310] {
        send(1, from..from + 10, 2010);
    }
    analyzer.flush(|it| given.push(it.record.captured.to_vec()));
    given.sort();
    let wanted: Vec<_> = (290..320u64).map(|at| at.to_be_bytes().to_vec()).collect();
    assert!(
        given == wanted,
        "{} given: {:?}",
        given.len(),
        analyzer.counters()
    );
    assert_eq!(analyzer.counters().doubles, 20, "{:?}", analyzer.counters());
}

#[test]
fn an_analyzer_that_is_cut_off_takes_what_it_can_not_judge() {
    let mut analyzer = analyzer();
    analyzer.follow(Revision(5), topology(0, None));
    let bytes = batch(NEW, 6, &[record(BEGIN, false, b"newer")]);
    analyzer
        .take(&Batch::decode(&bytes).unwrap(), BEGIN)
        .unwrap();
    let mut out = Out::default();
    analyzer.release(BEGIN + 600 * MS, |delivered| out.put(delivered));
    assert_eq!(out.contents, [b"newer"]);
}

#[test]
fn a_clock_that_is_wrong_holds_nobody_up() {
    let mut analyzer = analyzer();
    let third = NodeId(12);
    let wrong = record(BEGIN + 3_600_000 * MS, false, b"ahead");
    for (id, sent) in [
        (OLD, record(BEGIN, false, b"a")),
        (NEW, wrong),
        (third, record(BEGIN, false, b"b")),
    ] {
        let bytes = batch(id, 1, &[sent]);
        analyzer
            .take(&Batch::decode(&bytes).unwrap(), BEGIN)
            .unwrap();
    }
    let mut out = Out::default();
    analyzer.release(BEGIN + 501 * MS, |delivered| out.put(delivered));
    assert_eq!(out.contents, [b"a", b"b"]);
    assert_eq!(analyzer.counters().ahead, 1);
    analyzer.flush(|delivered| out.put(delivered));
    assert_eq!(out.contents[2], b"ahead");
}

#[test]
fn a_late_record_is_given_out_and_counted() {
    let mut analyzer = analyzer();
    let bytes = batch(OLD, 1, &[record(BEGIN + 900 * MS, false, b"new")]);
    analyzer
        .take(&Batch::decode(&bytes).unwrap(), BEGIN + 900 * MS)
        .unwrap();
    analyzer.release(BEGIN + 900 * MS, |_| ());
    let bytes = batch(NEW, 1, &[record(BEGIN, false, b"late")]);
    analyzer
        .take(&Batch::decode(&bytes).unwrap(), BEGIN + 900 * MS)
        .unwrap();
    let mut late = Vec::new();
    analyzer.flush(|delivered| late.push(delivered.late));
    assert_eq!(late, [true, false]);
    assert_eq!(analyzer.counters().late, 1);
}

#[test]
fn late_records_that_can_not_be_compared_are_counted() {
    // When a packet comes, and when its double comes, in seconds.
    for (first, double, wanted) in [(130, 132, (1, 0)), (130, 240, (1, 0)), (130, 260, (0, 1))] {
        let mut analyzer = analyzer();
        let at = |seconds: u64| BEGIN + seconds * 1000 * MS;
        let mut given = 0;
        for (id, stamp, now, content) in [
            (OLD, at(first), at(first), "both"),
            (NodeId(12), at(double), at(double), "another"),
            (NEW, at(first), at(double), "both"),
        ] {
            let bytes = batch(id, 1, &[record(stamp, true, content.as_bytes())]);
            let batch = Batch::decode(&bytes).unwrap();
            analyzer.take(&batch, now).unwrap();
            analyzer.release(now + 900 * MS, |_| given += 1);
        }
        analyzer.flush(|_| given += 1);
        let counters = analyzer.counters();
        let told = (counters.doubles, counters.unchecked);
        assert_eq!(told, wanted, "{first} {double}: {counters:?}");
        assert_eq!(given, 3 - told.0);
    }
}

#[test]
fn memory_is_bounded() {
    let settings = AnalyzerSettings {
        most_held: 1000,
        ..analyzer().settings
    };
    let mut analyzer = Analyzer::new(settings);
    let mut given = 0;
    for number in 0..50 {
        let bytes = batch(NodeId(number), 1, &[record(BEGIN, false, &[0; 100])]);
        analyzer
            .take(&Batch::decode(&bytes).unwrap(), BEGIN)
            .unwrap();
        analyzer.release(BEGIN, |_| given += 1);
        assert!(analyzer.timeline.bytes <= 1000);
    }
    assert!(given > 40 && analyzer.counters().hurried > 0);
}
