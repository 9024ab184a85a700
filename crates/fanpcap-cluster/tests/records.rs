//! Messages are read as they were written, and garbage is refused.

use fanpcap_buckets::layout::BUCKETS;
use proptest::collection::vec;
use proptest::prelude::*;

use fanpcap_cluster::dicap::{DatagramBuilder, HEADER_BYTES, headers_of};
use fanpcap_cluster::record::*;
use fanpcap_cluster::witness::{Assembly, Beacon, Chunk, Report, Summary};
use fanpcap_cluster::{NodeId, Revision};

fn head(kind: Kind) -> Head {
    Head {
        kind,
        length: 0,
        cluster: 0x1122_3344_5566_7788,
        node: NodeId(7),
        boot: 1,
        session: 2,
    }
}

#[derive(Clone, Debug)]
struct Owned {
    revision: Revision,
    stamp: u64,
    wire_length: u32,
    bucket: u16,
    marked: bool,
    captured: Vec<u8>,
}

impl Owned {
    fn record(&self) -> Record<'_> {
        Record {
            stamp: self.stamp,
            wire_length: self.wire_length,
            bucket: self.bucket,
            marked: self.marked,
            captured: &self.captured,
        }
    }
}

prop_compose! {
    fn owned()(
        revision in 0u64..3,
        stamp in prop_oneof![Just(1u64 << 60), (1u64 << 60)..(1 << 60) + 9_000_000_000, any::<u64>()],
        wire_length in any::<u32>(),
        bucket in 0u16..4096,
        marked in any::<bool>(),
        captured in vec(any::<u8>(), 0..90),
    ) -> Owned {
        Owned { revision: Revision(revision), stamp, wire_length, bucket, marked, captured }
    }
}

/// All batches that come of `records`.
fn batches(records: &[Owned], size: usize) -> Vec<Vec<u8>> {
    let mut builder = BatchBuilder::new(head(Kind::Records), size, 1);
    let pushed = records
        .iter()
        .filter_map(|owned| builder.push(owned.revision, &owned.record()));
    let mut batches: Vec<_> = pushed.collect();
    batches.extend(builder.flush());
    batches
}

proptest! {
    #[test]
    fn batches_give_back_their_records(records in vec(owned(), 0..200), size in 250usize..70_000) {
        let mut next = records.iter();
        let mut number = 0;
        for (sequence, bytes) in batches(&records, size).iter().enumerate() {
            prop_assert!(bytes.len() <= size.min(MESSAGE_BYTES));
            let batch = Batch::decode(bytes).unwrap();
            prop_assert_eq!(batch.head, Head { length: bytes.len(), ..head(Kind::Records) });
            prop_assert_eq!(batch.origin.sequence, sequence as u64);
            prop_assert_eq!(batch.origin.first, number);
            prop_assert_eq!(batch.records().count(), usize::from(batch.len()));
            number += u64::from(batch.len());
            for record in batch.records() {
                let owned = next.next().unwrap();
                prop_assert_eq!(record, owned.record());
                prop_assert_eq!(batch.origin.revision, owned.revision);
            }
        }
        prop_assert!(next.next().is_none());
    }

    #[test]
    fn a_batch_with_a_wrong_byte_is_refused_or_read_within_its_bounds(
        records in vec(owned(), 1..20),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        for mut bytes in batches(&records, 1400) {
            let at = at.index(bytes.len());
            bytes[at] = value;
            if let Ok(batch) = Batch::decode(&bytes) {
                prop_assert_eq!(batch.records().count(), usize::from(batch.len()));
            }
            let cut = cut.index(bytes.len());
            prop_assert!(Batch::decode(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn garbage_is_no_message(mut bytes in vec(any::<u8>(), 0..200), begins in any::<bool>()) {
        if begins && bytes.len() >= 12 {
            bytes[..5].copy_from_slice(b"FNPR\x02");
            bytes[5] &= 3;
            let length = u32::try_from(bytes.len()).unwrap();
            bytes[8..12].copy_from_slice(&length.to_be_bytes());
        }
        if let Ok(batch) = Batch::decode(&bytes) {
            prop_assert_eq!(batch.records().count(), usize::from(batch.len()));
        }
        if let Ok((_, chunk)) = decode_counts(&bytes) {
            prop_assert!(usize::from(chunk.first) + chunk.counts.len() <= BUCKETS);
        }
        let _ = (decode_ack(&bytes), headers_of(&bytes));
    }

    #[test]
    fn counts_give_back_their_chunk(
        numbers in any::<[u64; 6]>(),
        first in 0u16..4000,
        counts in vec(prop::array::uniform3(any::<u64>()), 0..90),
    ) {
        let chunk = Chunk { summary: summary(numbers), first, counts };
        let message = encode_counts(&head(Kind::Ack), &chunk);
        let (read, decoded) = decode_counts(&message).unwrap();
        prop_assert_eq!((read.kind, read.length), (Kind::Counts, message.len()));
        prop_assert_eq!(decoded, chunk);
    }

    #[test]
    fn a_paper_datagram_has_28_headers(packets in vec(vec(any::<u8>(), 0..80), 0..100)) {
        let mut builder = DatagramBuilder::default();
        let full: Vec<_> = packets.iter().filter_map(|packet| builder.push(packet)).collect();
        prop_assert!(full.iter().all(|datagram| datagram.len() == 1456));
        let rest = builder.flush();
        prop_assert!(builder.flush().is_none());
        let mut headers = full.iter().chain(&rest).flat_map(|all| headers_of(all).unwrap());
        for packet in &packets {
            let header = headers.next().unwrap();
            let kept = packet.len().min(HEADER_BYTES);
            prop_assert_eq!(&header[..kept], &packet[..kept]);
            prop_assert!(header[kept..].iter().all(|&byte| byte == 0));
        }
        prop_assert!(headers.next().is_none());
    }
}

fn summary(numbers: [u64; 6]) -> Summary {
    let [since, stamp, revision, ring, sequence, seen] = numbers;
    Summary {
        node: NodeId(7),
        boot: 1,
        since,
        stamp,
        revision: Revision(revision),
        ring,
        beacon: Beacon { sequence, seen },
    }
}

#[test]
fn an_acknowledgement_names_the_first_batch_that_lacks() {
    let ack = encode_ack(&head(Kind::Records), 77);
    assert_eq!(ack.len(), ACK_BYTES);
    let (read, next) = decode_ack(&ack).unwrap();
    assert_eq!((read.session, read.kind, next), (2, Kind::Ack, 77));
    assert_eq!(Batch::decode(&ack), Err(MessageError::Kind(3)));
}

#[test]
fn a_node_without_packets_says_so() {
    let mut builder = BatchBuilder::new(head(Kind::Records), 1400, 1);
    let idle = builder.idle(Revision(3), 99).unwrap();
    let batch = Batch::decode(&idle).unwrap();
    assert!(batch.is_empty());
    assert_eq!((batch.stamp(), batch.origin.sequence), (99, 0));
    assert_eq!(builder.sequence(), 1);
}

#[test]
fn chunks_make_the_report_again_in_any_order() {
    let report = Report {
        summary: summary([1, 2, 3, 4, 5, 6]),
        seen: Box::new(std::array::from_fn(|bucket| bucket as u64)),
        captured: Box::new(std::array::from_fn(|bucket| bucket as u64 / 2)),
        shared: Box::new(std::array::from_fn(|bucket| bucket as u64 / 3)),
    };
    let mut assembly = Assembly::default();
    let mut chunks: Vec<_> = report.chunks(70).collect();
    chunks.reverse();
    let last = chunks.pop().unwrap();
    let newer = Summary {
        stamp: 1,
        ..report.summary
    };
    for chunk in &chunks {
        assert_eq!(assembly.take(chunk), None);
        assert_eq!(assembly.take(chunk), None);
        assert_eq!(
            assembly.take(&Chunk {
                summary: newer,
                ..chunk.clone()
            }),
            None
        );
    }
    assert_eq!(assembly.take(&last), Some(report));
}
