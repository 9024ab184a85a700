//! Reads any bytes as a message to an analyzer. The decoder must not read bytes outside of the
//! message.
#![no_main]

use fanpcap_cluster::dicap::headers_of;
use fanpcap_cluster::record::{Batch, CountsDecoder, CountsEncoder, Head, decode_ack};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = (decode_ack(bytes), headers_of(bytes));
    let mut decoder = CountsDecoder::default();
    if let Ok((part, first)) = decoder.decode(bytes) {
        // Encodes the same differences once more, for another connection.
        let head = Head::decode(bytes).expect("a report");
        let mut encoder = CountsEncoder::new(head, part);
        let second = decoder.decode(bytes).expect("the same bytes").1;
        let mut reader = CountsDecoder::default();
        for report in [first, second] {
            assert_eq!(reader.decode(&encoder.encode(&report)), Ok((part, report)));
        }
    }
    if let Ok(batch) = Batch::decode(bytes) {
        assert_eq!(batch.records().count(), usize::from(batch.len()));
    }
});
