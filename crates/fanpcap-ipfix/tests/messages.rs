//! A collector must read exactly what was exported, for random packets and counts, and also when a
//! message is full.

mod collector;

use std::time::Duration;

use collector::{Collector, Record};
use fanpcap_ipfix::{Algorithm, Exporter, Form, Packet, Selector, Statistics, Transport};
use proptest::collection::vec;
use proptest::prelude::*;

/// Maximum length of a message in bytes.
const MESSAGE_MAX: usize = 1400;

/// What is passed to an exporter. A `Packet` borrows the bytes of its frame, so these bytes are
/// stored beside it.
#[derive(Clone, Debug)]
enum Given {
    Packet(Packet<'static>, Vec<u8>),
    Selector(Selector),
    Statistics(Statistics),
    Flush,
}

fn time() -> impl Strategy<Value = Duration> {
    // The seconds of NTP wrap in 2036.
    (0..2_085_978_496_u64, 0..1_000_000_000_u32).prop_map(|(s, ns)| Duration::new(s, ns))
}

fn given() -> impl Strategy<Value = Given> {
    let packet = (
        time(),
        any::<u32>(),
        any::<(u64, u16, u32)>(),
        vec(any::<u8>(), 0..2000),
    );
    let packet = packet.prop_map(|(time, wire_len, (revision, bucket, digest), frame)| {
        let packet = Packet {
            time,
            wire_len,
            frame: &[],
            revision,
            bucket,
            digest,
        };
        Given::Packet(packet, frame)
    });
    let algorithm = prop_oneof![
        any::<(u32, u32)>().prop_map(|(interval, space)| Algorithm::Systematic { interval, space }),
        any::<(u32, u32)>().prop_map(|(modulus, payload_len)| Algorithm::Bob {
            modulus,
            payload_len,
        }),
    ];
    let selector = (any::<(u64, u16)>(), algorithm).prop_map(|((revision, bucket), algorithm)| {
        Given::Selector(Selector {
            revision,
            bucket,
            algorithm,
        })
    });
    let statistics = (time(), any::<(u64, u16, u64, u64)>());
    let statistics = statistics.prop_map(|(time, (revision, bucket, observed, selected))| {
        Given::Statistics(Statistics {
            time,
            revision,
            bucket,
            observed,
            selected,
        })
    });
    prop_oneof![6 => packet, 1 => selector, 1 => statistics, 1 => Just(Given::Flush)]
}

proptest! {
    #[test]
    fn a_collector_reads_what_was_given(
        all in vec(given(), 0..60),
        domain: u32,
    ) {
        let mut exporter = Exporter::new(domain, Form::Sections, Transport::Udp);
        let mut collector = Collector::default();
        for (second, given) in (0..).zip(&all) {
            let now = Duration::from_secs(u64::from(second));
            export(&mut exporter, now, given, &mut |message| {
                assert!(message.len() <= MESSAGE_MAX);
                collector.read(message).unwrap();
                assert_eq!((collector.domain, collector.export_seconds), (domain, second));
            });
        }
        exporter.flush(Duration::ZERO, &mut |message| collector.read(message).unwrap());
        let records: Vec<&Given> = all.iter().filter(|g| !matches!(g, Given::Flush)).collect();
        prop_assert_eq!(collector.records.len(), records.len());
        let mut cut = 0;
        for (record, given) in collector.records.iter().zip(records) {
            cut += u64::from(compare(record, given)?);
        }
        prop_assert_eq!(exporter.totals().cut, cut);
    }
}

fn export(exporter: &mut Exporter, now: Duration, given: &Given, send: &mut impl FnMut(&[u8])) {
    match given {
        Given::Packet(packet, frame) => exporter.packet(now, &Packet { frame, ..*packet }, send),
        Given::Selector(selector) => exporter.selector(now, selector, send),
        Given::Statistics(statistics) => exporter.statistics(now, statistics, send),
        Given::Flush => exporter.flush(now, send),
    }
}

/// Compares a record with the data from which it was made. Returns whether the frame was shortened.
fn compare(record: &Record, given: &Given) -> Result<bool, TestCaseError> {
    let scope = [record.number(301), record.number(302)];
    match given {
        Given::Packet(packet, frame) => {
            prop_assert_eq!(record.scope, 0);
            prop_assert_eq!(scope, [Some(packet.revision), Some(packet.bucket.into())]);
            prop_assert_eq!(record.number(326), Some(packet.digest.into()));
            prop_assert_eq!(record.number(312), Some(packet.wire_len.min(65535).into()));
            prop_assert_eq!(record.number(408), Some(1));
            let stamp = record.number(325).expect("a time");
            prop_assert_eq!(stamp >> 32, packet.time.as_secs() + 2_208_988_800);
            let nanoseconds = ((stamp & 0xffff_ffff) * 1_000_000_000) >> 32;
            prop_assert_eq!(nanoseconds, packet.time.subsec_nanos().into());
            let section = record.bytes(315).expect("a section");
            prop_assert_eq!(section, &frame[..section.len()]);
            // A section may be shorter than its frame only if the message was full.
            let is_cut = section.len() < frame.len();
            prop_assert!(!is_cut || section.len() > MESSAGE_MAX - 64);
            return Ok(is_cut);
        }
        Given::Selector(selector) => {
            prop_assert_eq!(record.scope, 2);
            prop_assert_eq!(
                scope,
                [Some(selector.revision), Some(selector.bucket.into())]
            );
            compare_algorithm(record, selector)?;
        }
        Given::Statistics(statistics) => {
            prop_assert_eq!(record.scope, 2);
            prop_assert_eq!(
                scope,
                [Some(statistics.revision), Some(statistics.bucket.into())]
            );
            prop_assert_eq!(
                record.number(323),
                u64::try_from(statistics.time.as_millis()).ok()
            );
            prop_assert_eq!(record.number(318), Some(statistics.observed));
            prop_assert_eq!(record.number(319), Some(statistics.selected));
        }
        Given::Flush => unreachable!("it makes no record"),
    }
    Ok(false)
}

fn compare_algorithm(record: &Record, selector: &Selector) -> Result<(), TestCaseError> {
    let number = |element| record.number(element);
    match selector.algorithm {
        Algorithm::Systematic { interval, space } => {
            prop_assert_eq!(number(304), Some(1));
            prop_assert_eq!(
                [number(305), number(306)],
                [interval, space].map(|n| Some(n.into()))
            );
        }
        Algorithm::Bob {
            modulus,
            payload_len,
        } => {
            prop_assert_eq!(number(304), Some(6));
            prop_assert_eq!(
                [number(327), number(328)],
                [0, payload_len].map(|n| Some(n.into()))
            );
            let last = modulus.saturating_sub(1);
            prop_assert_eq!(
                [number(329), number(330)],
                [0, last].map(|n| Some(n.into()))
            );
            prop_assert_eq!(
                [number(331), number(332)],
                [Some(selector.bucket.into()); 2]
            );
            prop_assert_eq!(number(333), Some(1));
        }
    }
    Ok(())
}

/// An Ethernet frame of 70 bytes: TCP from 10.0.0.1:80 to 10.0.0.2:443 with flags SYN and ACK.
fn tcp_frame() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([
        0x45, 0x10, 0, 56, 0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    frame.extend([
        0, 80, 1, 187, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x12, 0, 0, 0, 0, 0, 0,
    ]);
    frame.resize(70, 0);
    frame
}

fn packet(frame: &[u8]) -> Packet<'_> {
    Packet {
        time: Duration::from_millis(1_700_000_000_123),
        wire_len: 70,
        frame,
        revision: 1,
        bucket: 2,
        digest: 3,
    }
}

#[test]
fn a_packet_may_be_a_flow() {
    let mut exporter = Exporter::new(7, Form::Flows, Transport::Udp);
    let mut collector = Collector::default();
    let mut send = |message: &[u8]| collector.read(message).unwrap();
    let frame = tcp_frame();
    exporter.packet(Duration::ZERO, &packet(&frame), &mut send);
    // An ARP frame, and a frame that ends within its header.
    let mut other = frame.clone();
    other[12..14].copy_from_slice(&[8, 6]);
    exporter.packet(Duration::ZERO, &packet(&other), &mut send);
    exporter.packet(Duration::ZERO, &packet(&frame[..20]), &mut send);
    // Statistics are not exported as flows, because a flow's record names no selector.
    let statistics = Statistics {
        time: Duration::ZERO,
        revision: 1,
        bucket: 2,
        observed: 1,
        selected: 1,
    };
    exporter.statistics(Duration::ZERO, &statistics, &mut send);
    exporter.flush(Duration::ZERO, &mut send);
    let totals = exporter.totals();
    assert_eq!([totals.packets, totals.left_out, totals.cut], [1, 2, 0]);
    let [record] = &collector.records[..] else {
        panic!("{:?}", collector.records);
    };
    let expected = [
        (8, 0x0a00_0001),
        (12, 0x0a00_0002),
        (7, 80),
        (11, 443),
        (4, 6),
        (6, 0x12),
        (5, 0x10),
        (1, 56),
        (2, 1),
        (152, 1_700_000_000_123),
        (153, 1_700_000_000_123),
    ];
    for (element, value) in expected {
        assert_eq!(record.number(element), Some(value), "element {element}");
    }
}

/// The times at which templates are sent, if a packet is exported at each of `times`.
fn described(transport: Transport, times: &[u64]) -> Vec<u64> {
    let mut exporter = Exporter::new(7, Form::Sections, transport);
    let mut described = Vec::new();
    for time in times {
        let now = Duration::from_secs(*time);
        exporter.packet(now, &packet(&[]), &mut |_| ());
        exporter.flush(now, &mut |message| {
            // The first set has the id 2: it is a template set.
            if message[16..18] == [0, 2] {
                described.push(*time);
            }
        });
    }
    described
}

#[test]
fn templates_are_sent_again() {
    use Transport::{Tcp, Udp};
    assert_eq!(described(Tcp, &[1, 99, 5]), [1]);
    assert_eq!(described(Udp, &[1, 10, 20, 21, 22, 42]), [1, 21, 42]);
    // When the clock is set back, the templates are sent again.
    assert_eq!(described(Udp, &[20, 21, 3, 4]), [20, 3]);
    assert_eq!(described(Udp, &[1; 4096]), [1]);
    assert_eq!(described(Udp, &[1; 8193]), [1, 1, 1]);
}

#[test]
fn a_connection_begins_with_templates_and_number_0() {
    let mut exporter = Exporter::new(7, Form::Sections, Transport::Tcp);
    exporter.packet(Duration::ZERO, &packet(&[1]), &mut |_| ());
    exporter.flush(Duration::ZERO, &mut |_| ());
    exporter.packet(Duration::ZERO, &packet(&[2]), &mut |_| ());
    exporter.restart();
    let mut collector = Collector::default();
    exporter.flush(Duration::ZERO, &mut |message| {
        collector.read(message).unwrap();
    });
    assert_eq!(collector.records[0].bytes(315), Some(&[2_u8][..]));
}
