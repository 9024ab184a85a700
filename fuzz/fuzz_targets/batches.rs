//! Any bytes as a message to an analyzer. The decoder reads no byte outside of the message.
#![no_main]

use fanpcap_cluster::dicap::headers_of;
use fanpcap_cluster::record::{Batch, decode_ack, decode_counts};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = (decode_ack(bytes), headers_of(bytes));
    if let Ok((_, chunk)) = decode_counts(bytes) {
        assert!(usize::from(chunk.first) + chunk.counts.len() <= 4096);
    }
    if let Ok(batch) = Batch::decode(bytes) {
        assert_eq!(batch.records().count(), usize::from(batch.len()));
    }
});
