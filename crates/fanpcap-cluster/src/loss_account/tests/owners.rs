//! Topologies and reports that come late, or never, in distribution mode.

use fanpcap_buckets::Slot;
use fanpcap_buckets::layout::BUCKETS;
use fanpcap_select::Selection;

use super::model::SECOND;
use super::named::{BEGIN, report};
use crate::identity::{NodeId, Revision};
use crate::loss_account::{BucketAccount, Ledger, LedgerSettings};
use crate::topology::{NodeEntry, Topology};

/// A ledger that begins at `BEGIN`.
fn ledger() -> Ledger {
    Ledger::new(LedgerSettings {
        skew: SECOND / 5,
        begin: BEGIN,
        analyzed: false,
    })
}

/// Adds a topology of the nodes 0 to 2. Its epoch is the lower half of its revision. `owner` has
/// bucket 0; in a union, `new_owner` gets it. Node 2 has the other buckets.
fn add(ledger: &mut Ledger, revision: u64, owner: u8, new_owner: Option<u8>) {
    let owners = |first: u8| {
        let mut owners = Box::new([Some(Slot(2)); BUCKETS]);
        owners[0] = Some(Slot(first));
        owners
    };
    let entry = |node: u8| NodeEntry {
        slot: Slot(node),
        node: NodeId(node.into()),
        weight: 1,
    };
    let topology = Topology {
        epoch: revision & u64::from(u32::MAX),
        selection: Selection::default(),
        nodes: (0..3).map(entry).collect(),
        owners: owners(owner),
        new_owners: new_owner.map(owners),
        analyzers: Vec::new(),
        filter: None,
    };
    ledger.add_topology(Revision(revision), topology);
}

/// Gives the ledger a report that a node made `tenths` of a second after `BEGIN`, when it followed
/// the topology `revision`. The node saw and captured these packets of bucket 0, and no others.
fn take(ledger: &mut Ledger, node: u32, tenths: u64, revision: u64, [seen, captured]: [u64; 2]) {
    let mut report = report(node, 0, |bucket| if bucket == 0 { seen } else { 0 });
    report.summary.stamp += tenths * SECOND / 10;
    report.summary.revision = Revision(revision);
    report.captured[0] = captured;
    ledger.take(report).unwrap();
}

/// The figures of bucket 0.
fn row(ledger: &Ledger) -> BucketAccount {
    ledger.account().buckets[0]
}

/// Node 1 names an unknown topology in all its reports, which come five times a second. After some
/// seconds the ledger evaluates buckets without traffic all the same.
#[test]
fn a_node_whose_topology_stays_unknown_does_not_delay_the_account() {
    let mut ledger = ledger();
    add(&mut ledger, 1, 0, None);
    for tenths in (0..200).step_by(2) {
        let came = 10 * u64::from(tenths >= 20);
        take(&mut ledger, 0, tenths, 1, [came, came]);
        take(&mut ledger, 1, tenths, 9, [came.saturating_sub(3), 0]);
        take(&mut ledger, 2, tenths, 1, [came, 0]);
        ledger.settle();
    }
    // The packets that a port did not deliver are counted when traffic has stopped.
    let mirror = ledger.account().nodes.iter().map(|node| node.mirror).collect::<Vec<_>>();
    assert_eq!(mirror, [0, 3, 0]);
    let row = row(&ledger);
    assert!(row.lost.has(0) && row.doubles.has(0), "{row:?}");
}
