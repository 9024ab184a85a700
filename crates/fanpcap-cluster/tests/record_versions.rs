//! Different versions of the messages from nodes to analyzers. Bytes that a later version may use
//! are skipped. Another version of the messages is refused, and the error gives the reason.

use fanpcap_cluster::loss_account::{Beacon, Report, Summary};
use fanpcap_cluster::record::{
    Batch, BatchBuilder, CountsDecoder, CountsEncoder, Head, Kind, MessageError, Record,
    decode_ack, encode_ack,
};
use fanpcap_cluster::{NodeId, Part, Revision};

const CLUSTER: u64 = 7;

/// The position of the version in a message.
const VERSION: usize = 4;

fn head(kind: Kind) -> Head {
    Head {
        kind,
        length: 0,
        cluster: CLUSTER,
        node: NodeId(2),
        boot: 3,
        session: 4,
    }
}

fn batch() -> Vec<u8> {
    let mut builder = BatchBuilder::new(head(Kind::Records), 1400, 1);
    let record = Record {
        stamp: 1 << 60,
        wire_length: 60,
        bucket: 9,
        marked: true,
        captured: &[5; 52],
    };
    assert_eq!(builder.push(Revision(1), &record), None);
    builder.flush().expect("a batch")
}

fn counts() -> Vec<u8> {
    let summary = Summary {
        node: NodeId(2),
        boot: 3,
        since: 4,
        stamp: 5,
        revision: Revision(6),
        ring: 7,
        beacon: Beacon::default(),
    };
    let report = Report {
        summary,
        seen: Box::new([2; 4096]),
        captured: Box::new([1; 4096]),
    };
    CountsEncoder::new(head(Kind::Counts), Part::WHOLE).encode(&report)
}

/// The message with 0xab instead of 0 in the bytes that a later version may use.
fn with(mut message: Vec<u8>, unused: &[(usize, usize)]) -> Vec<u8> {
    for (from, to) in unused {
        let bytes = &mut message[*from..*to];
        assert!(bytes.iter().all(|byte| *byte == 0));
        bytes.fill(0xab);
    }
    message
}

#[test]
fn bytes_that_a_later_version_uses_are_skipped() {
    let (now, later) = (batch(), with(batch(), &[(6, 8), (76, 80)]));
    assert_eq!(Batch::decode(&later), Batch::decode(&now));
    let (now, later) = (counts(), with(counts(), &[(6, 8), (92, 96)]));
    let decode = |message: &[u8]| CountsDecoder::default().decode(message);
    assert!(decode(&now).is_ok());
    assert_eq!(decode(&later), decode(&now));
    let ack = || encode_ack(&head(Kind::Records), 9);
    assert_eq!(decode_ack(&with(ack(), &[(6, 8)])), decode_ack(&ack()));
}

#[test]
fn another_version_is_refused_with_the_reason() {
    let mut later = batch();
    later[VERSION] += 1;
    assert_eq!(Batch::decode(&later), Err(MessageError::Version(2)));
}
