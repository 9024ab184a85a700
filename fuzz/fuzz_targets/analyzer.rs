//! An analyzer and a ledger get any messages that can be decoded, and must not panic.
#![no_main]

use fanpcap_buckets::Slot;
use fanpcap_cluster::analyzer::{Analyzer, AnalyzerSettings};
use fanpcap_cluster::loss_account::{Ledger, LedgerSettings};
use fanpcap_cluster::record::{Batch, CountsDecoder};
use fanpcap_cluster::{NodeEntry, NodeId, Revision, Topology};
use fanpcap_select::Selection;
use libfuzzer_sys::fuzz_target;

/// A topology of two nodes in which some buckets move from one to the other.
fn topology(node: NodeId) -> Topology {
    let entry = |slot: u8, node: u32| NodeEntry {
        slot: Slot(slot),
        node: NodeId(node),
        weight: 1,
    };
    Topology {
        epoch: 1,
        selection: Selection::default(),
        nodes: vec![entry(0, node.0), entry(1, node.0.wrapping_add(1))],
        owners: Box::new(std::array::from_fn(|bucket| {
            Some(Slot(u8::from(bucket % 3 == 0)))
        })),
        new_owners: Some(Box::new(std::array::from_fn(|bucket| {
            Some(Slot(u8::from(bucket % 2 == 0)))
        }))),
        analyzers: Vec::new(),
        filter: None,
    }
}

fn account(bytes: &[u8]) {
    let Ok((_, report)) = CountsDecoder::default().decode(bytes) else {
        return;
    };
    let mut ledger = Ledger::new(LedgerSettings {
        skew: 1000,
        begin: 0,
        analyzed: false,
    });
    let _ = ledger.take(report);
    ledger.settle();
    ledger.account();
}

fuzz_target!(|bytes: &[u8]| {
    account(bytes);
    let Ok(batch) = Batch::decode(bytes) else {
        return;
    };
    let mut analyzer = Analyzer::new(AnalyzerSettings {
        cluster: batch.head.cluster,
        hold: 1000,
        skew: 100,
        most_held: 1 << 20,
        seed: 1,
        begin: 0,
    });
    analyzer.follow(Revision(1), topology(batch.head.node));
    analyzer.know(1 << 60);
    let mut given = 0;
    let _ = analyzer.take(&batch, 1 << 60);
    analyzer.release(1 << 61, |_| given += 1);
    analyzer.flush(|_| given += 1);
    assert!(given <= usize::from(batch.len()));
});
