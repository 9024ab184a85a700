//! Messages are read as they were written, and random bytes are refused.

use proptest::collection::vec;
use proptest::prelude::*;

use fanpcap_cluster::dicap::{DatagramBuilder, HEADER_BYTES, headers_of};
use fanpcap_cluster::loss_account::{Beacon, Report, Summary};
use fanpcap_cluster::record::*;
use fanpcap_cluster::{NodeId, Part, Revision};

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

/// The batches that a builder makes of these records.
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
    fn garbage_is_no_message(
        mut bytes in vec(any::<u8>(), 0..200),
        begins in any::<bool>(),
        kind in prop_oneof![3 => 1..=3u8, 1 => any::<u8>()],
    ) {
        if begins && bytes.len() >= 12 {
            bytes[..5].copy_from_slice(b"FNPR\x01");
            bytes[5] = kind;
            let length = u32::try_from(bytes.len()).unwrap();
            bytes[8..12].copy_from_slice(&length.to_be_bytes());
            if bytes.len() >= HEAD_BYTES && !(1..=3).contains(&kind) {
                prop_assert_eq!(Head::decode(&bytes), Err(MessageError::Kind(kind)));
            }
        }
        if let Ok(batch) = Batch::decode(&bytes) {
            prop_assert_eq!(batch.records().count(), usize::from(batch.len()));
        }
        let _ = (CountsDecoder::default().decode(&bytes), decode_ack(&bytes), headers_of(&bytes));
    }

    #[test]
    fn reports_of_a_connection_are_read_as_they_were_written(
        reports in vec((any::<[u64; 6]>(), rows()), 1..5),
        count in 1u16..40,
        place in any::<prop::sample::Index>(),
    ) {
        let part = Part::new(u16::try_from(place.index(count.into())).unwrap(), count).unwrap();
        let mut encoder = CountsEncoder::new(head(Kind::Ack), part);
        let mut decoder = CountsDecoder::default();
        for (numbers, rows) in &reports {
            let report = report(*numbers, |bucket| rows[bucket % rows.len()]);
            let message = encoder.encode(&report);
            prop_assert!(message.len() <= MESSAGE_BYTES);
            let its = |counts: &[u64]| -> Vec<u64> { part.buckets().map(|it| counts[it]).collect() };
            let (of, read) = decoder.decode(&message).unwrap();
            prop_assert_eq!((of, read.summary), (part, report.summary));
            for (read, written) in [
                (&read.seen, &report.seen),
                (&read.captured, &report.captured),
            ] {
                prop_assert_eq!(its(&read[..]), its(&written[..]));
                let others = |count: &&u64| **count != 0;
                prop_assert!(read.iter().filter(others).count() <= part.buckets().count());
            }
        }
        // The next report is for another connection and another decoder.
        encoder.restart();
        let (numbers, rows) = &reports[0];
        let report = report(*numbers, |bucket| rows[bucket % rows.len()]);
        let read = CountsDecoder::default().decode(&encoder.encode(&report)).unwrap().1;
        for bucket in part.buckets() {
            prop_assert_eq!(read.seen[bucket], report.seen[bucket]);
        }
    }

    #[test]
    fn a_report_with_a_wrong_byte_or_length_is_refused_or_read(
        rows in rows(),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let report = report([9; 6], |bucket| rows[bucket % rows.len()]);
        let mut encoder = CountsEncoder::new(head(Kind::Counts), Part::WHOLE);
        let mut message = encoder.encode(&report);
        let mut short = message[..cut.index(message.len())].to_vec();
        if short.len() > HEAD_BYTES {
            let length = u32::try_from(short.len()).unwrap();
            short[8..12].copy_from_slice(&length.to_be_bytes());
        }
        prop_assert!(CountsDecoder::default().decode(&short).is_err());
        let at = at.index(message.len());
        message[at] = value;
        let _ = CountsDecoder::default().decode(&message);
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

/// Counts for several buckets. Each count is 0, small, or any number.
fn rows() -> impl Strategy<Value = Vec<[u64; 2]>> {
    let count = |most| prop_oneof![Just(0), 0u64..300, 0..=most];
    let row = (count(u64::MAX >> 1), count(u64::MAX));
    vec(row.prop_map(<[u64; 2]>::from), 1..200)
}

fn report(numbers: [u64; 6], counts: impl Fn(usize) -> [u64; 2]) -> Report {
    let of = |which: usize| Box::new(std::array::from_fn(|bucket| counts(bucket)[which]));
    Report {
        summary: summary(numbers),
        seen: of(0),
        captured: of(1),
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
fn a_connection_has_the_counts_of_one_part() {
    let parts: Vec<Part> = Part::each(2).collect();
    let report = report([1; 6], |_| [3, 2]);
    let messages: Vec<_> = parts
        .iter()
        .map(|part| CountsEncoder::new(head(Kind::Counts), *part).encode(&report))
        .collect();
    let mut decoder = CountsDecoder::default();
    assert_eq!(decoder.decode(&messages[1]).unwrap().0, parts[1]);
    assert_eq!(decoder.decode(&messages[0]), Err(MessageError::Body));
    assert_eq!(Part::new(2, 2), None);
}

/// How many bytes one of 128 nodes sends to an analyzer in one second. The first report has a
/// year's counts, and the second report has those of one more second. Some buckets get 1.7 times as
/// many packets as others.
fn bytes_in_a_second(packets: u64) -> usize {
    const YEAR: u64 = 365 * 86_400;
    let of_bucket = |bucket: usize| packets / 4096 * (75 + bucket as u64 * 13 % 51) / 100;
    let at = |seconds: u64| {
        report([1; 6], |bucket| {
            let seen = of_bucket(bucket) * seconds;
            let own = if bucket % 128 == 5 { seen } else { 0 };
            [seen, own]
        })
    };
    let mut encoder = CountsEncoder::new(head(Kind::Counts), Part::WHOLE);
    assert!(encoder.encode(&at(YEAR)).len() < 30_000);
    let mut bytes = 0;
    let mut decoder = CountsDecoder::default();
    encoder.restart();
    for seconds in [YEAR, YEAR + 1] {
        let message = encoder.encode(&at(seconds));
        bytes = message.len();
        assert_eq!(decoder.decode(&message).expect("a report").1, at(seconds));
    }
    bytes
}

#[test]
fn reports_of_128_nodes_take_less_than_20_mbit_a_second() {
    for packets in [10_000, 1_000_000, 14_880_000, 100_000_000] {
        let bytes = bytes_in_a_second(packets);
        // TLS adds 22 bytes to each 16 KiB. Ethernet, IPv4 and TCP add 66 bytes to each segment.
        let tls = bytes + bytes.div_ceil(1 << 14) * 22;
        let wire = tls + tls.div_ceil(1448) * 66;
        println!(
            "{packets} packets/s: {bytes} bytes, 128 nodes {} bit/s",
            128 * 8 * wire
        );
        assert!(
            128 * 8 * wire <= 20_000_000,
            "{packets} packets/s: {wire} bytes"
        );
    }
}
