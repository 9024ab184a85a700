//! Messages to an analyzer: what is read lies within them, and an analyzer takes what is valid.
#![no_main]

use fanpcap_cluster::analyzer::{Analyzer, AnalyzerSettings};
use fanpcap_cluster::record::{Batch, decode_ack, decode_counts, paper_headers};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = (decode_ack(bytes), paper_headers(bytes), decode_counts(bytes));
    let Ok(batch) = Batch::decode(bytes) else {
        return;
    };
    assert_eq!(batch.records().count(), usize::from(batch.len()));
    let mut analyzer = Analyzer::new(AnalyzerSettings {
        cluster: batch.head.cluster,
        hold: 1000,
        skew: 100,
        most_held: 1 << 20,
        seed: 1,
    });
    let mut given = 0;
    let _ = analyzer.take(&batch, 1 << 60);
    analyzer.release(1 << 61, |_| given += 1);
    analyzer.flush(|_| given += 1);
    assert!(given <= usize::from(batch.len()));
});
