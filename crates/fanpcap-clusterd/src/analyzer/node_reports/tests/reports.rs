//! Reports about other analyzers' buckets, and missing reports.

use fanpcap_buckets::Slot;
use fanpcap_cluster::NodeEntry;
use fanpcap_select::Selection;

use super::*;

#[test]
fn reports_of_another_part_wait_for_the_same_list_of_analyzers() {
    let parts: Vec<Part> = Part::each(2).collect();
    let mut both = Both::new(parts[0]);
    let at = |seconds: u64| Report8 {
        seconds,
        seen: 50 * seconds.min(8),
        captured: 50 * seconds.min(8),
        ..Report8::default()
    };
    for seconds in 0..12 {
        both.report(1, at(seconds));
        // Node 2 does not have the new list of analyzers yet, so it reports all buckets. The
        // analyzer must ignore these reports.
        let part = std::mem::replace(&mut both.node_reports.part, Part::WHOLE);
        let stranger = both.message(2, at(seconds));
        both.node_reports.part = part;
        both.take(&stranger, seconds);
        both.settle(seconds);
    }
    let account = both.node_reports.account();
    assert_eq!(exact(account.total.offered), 4 * 400);
    assert_eq!((account.nodes.len(), both.node_reports.refused), (1, 0));
}

#[test]
fn nodes_whose_reports_lack_are_known() {
    let mut both = Both::new(Part::WHOLE);
    let entry = |slot: u8, node: u32| NodeEntry {
        slot: Slot(slot),
        node: NodeId(node),
        weight: 1,
    };
    let topology = |epoch: u64, entries: &[NodeEntry]| Topology {
        epoch,
        selection: Selection::default(),
        nodes: entries.to_vec(),
        owners: Box::new([Some(Slot(1)); BUCKETS]),
        new_owners: None,
        analyzers: Vec::new(),
        filter: None,
    };
    let entries = [entry(0, 1), entry(1, 2)];
    both.node_reports
        .add_topology(Revision(1), topology(1, &entries));
    let ages = |both: &Both, seconds: u64| -> Vec<(u32, u64)> {
        let ages = both.node_reports.ages(BEGIN + seconds * SECOND).into_iter();
        ages.map(|(node, age)| (node.0, age / SECOND)).collect()
    };
    // Node 1 never reports. Node 2 reports until 9 s. Node 3, which is not in the topology, reports
    // until 4 s.
    for seconds in 0..40 {
        let at = Report8 {
            seconds,
            ..Report8::default()
        };
        for node in [(2, 10), (3, 5)] {
            if seconds < node.1 {
                both.report(node.0, at);
            }
        }
        both.settle(seconds);
        match seconds {
            9 => assert_eq!(ages(&both, 9), [(1, 9), (2, 0), (3, 5)]),
            // Node 3 has been silent since second 4, so it counts as dead and is no longer listed.
            20 => assert_eq!(ages(&both, 20), [(1, 20), (2, 11)]),
            30 => {
                assert_eq!(ages(&both, 30), [(1, 30), (2, 21)]);
                both.node_reports
                    .add_topology(Revision(2), topology(2, &entries[1..]));
            }
            _ => {}
        }
    }
    assert_eq!(ages(&both, 39), [(2, 30)]);
}
