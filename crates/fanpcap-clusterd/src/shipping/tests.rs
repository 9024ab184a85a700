//! Records get to an analyzer, even if connections break. Lost records are counted.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use fanpcap_cluster::dicap::headers_of;
use fanpcap_cluster::loss_account::{Beacon, Summary};
use fanpcap_cluster::record::{Batch, CountsDecoder, HEAD_BYTES, encode_ack};
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_testkit::loopback::free_address;

use super::*;

fn settings(transport: RecordTransport) -> ShipperSettings {
    ShipperSettings {
        cluster: 1,
        node: NodeId(2),
        boot: 3,
        session: 4,
        link: 1,
        transport,
    }
}

fn ship(shipper: &mut Shipper, numbers: std::ops::Range<u64>) {
    for number in numbers {
        shipper.push(
            Revision(1),
            &Record {
                stamp: number,
                wire_length: 100,
                bucket: 7,
                marked: false,
                captured: &number.to_be_bytes(),
            },
        );
    }
}

/// The next message on a connection.
fn message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = vec![0; HEAD_BYTES];
    stream.read_exact(&mut bytes).ok()?;
    let length = Head::decode(&bytes).unwrap().length;
    bytes.resize(length, 0);
    stream.read_exact(&mut bytes[HEAD_BYTES..]).ok()?;
    Some(bytes)
}

#[test]
fn a_broken_connection_loses_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut shipper = Shipper::new(settings(RecordTransport::Tcp), Arc::default());
    shipper.follow(&[listener.local_addr().unwrap()]).unwrap();
    ship(&mut shipper, 0..10_000);
    shipper.flush(Revision(1), 0);
    let reader = std::thread::spawn(move || {
        let mut there = BTreeSet::new();
        // The first connection breaks after two batches. One of these batches is acknowledged.
        for most in [2, usize::MAX] {
            let (mut stream, _) = listener.accept().unwrap();
            let mut next = 0;
            for _ in 0..most {
                let Some(bytes) = message(&mut stream) else {
                    break;
                };
                let batch = Batch::decode(&bytes).unwrap();
                there.extend(batch.records().map(|record| record.stamp));
                next = batch.origin.sequence + u64::from(most > 2 || batch.origin.sequence == 0);
                stream.write_all(&encode_ack(&batch.head, next)).unwrap();
                if there.len() == 10_000 {
                    break;
                }
            }
            assert!(next > 0);
            std::thread::sleep(Duration::from_millis(100));
        }
        there
    });
    let shipped = shipper.close();
    assert_eq!(reader.join().unwrap().len(), 10_000);
    assert_eq!(
        (shipped.taken, shipped.sent, shipped.lost),
        (10_000, 10_000, 0)
    );
    assert!(shipped.broken > 0);
}

#[test]
fn what_a_slow_analyzer_loses_leaves_no_gap_that_it_waits_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut shipper = Shipper::new(settings(RecordTransport::Tcp), Arc::default());
    shipper.follow(&[listener.local_addr().unwrap()]).unwrap();
    // The analyzer begins to read late: the window, the queue and the kernel's buffers together
    // can't hold all records until then.
    let captured = [7; 1000];
    for number in 0..400_000 {
        let record = Record {
            stamp: number,
            wire_length: 1000,
            bucket: 7,
            marked: false,
            captured: &captured,
        };
        shipper.push(Revision(1), &record);
    }
    let reader = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut next, mut records, mut last) = (0, 0, 0);
        while let Some(bytes) = message(&mut stream) {
            let batch = Batch::decode(&bytes).unwrap();
            assert_eq!(batch.origin.sequence, next);
            next += 1;
            records += u64::from(batch.len());
            last = batch.origin.first + u64::from(batch.len());
            stream.write_all(&encode_ack(&batch.head, next)).unwrap();
        }
        (records, last)
    });
    let shipped = shipper.close();
    let (records, last) = reader.join().unwrap();
    assert_eq!(shipped.taken, 400_000);
    assert_eq!(shipped.sent + shipped.lost, shipped.taken);
    assert!(shipped.lost > 0 && records == shipped.sent && last - records <= shipped.lost);
}

/// Ships batches with one record each.
fn ship_each(shipper: &mut Shipper, count: u64) {
    for number in 0..count {
        ship(shipper, number..number + 1);
        shipper.flush(Revision(1), 0);
    }
}

#[test]
fn a_node_keeps_what_fits_for_an_analyzer_that_is_gone_and_ends_all_the_same() {
    let to = free_address();
    let mut shipper = Shipper::new(settings(RecordTransport::Tcp), Arc::default());
    shipper.follow(&[to]).unwrap();
    ship_each(&mut shipper, 9000);
    assert_eq!(shipper.shipped().lost, 9000 - 8192);
    let listener = TcpListener::bind(to).unwrap();
    let reader = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut there = 0;
        while there < 8000 {
            let bytes = message(&mut stream).unwrap();
            there += u64::from(Batch::decode(&bytes).unwrap().len());
        }
        // All batches but the last are acknowledged. The analyzer is gone before the node reads the
        // acknowledgement.
        let bytes = message(&mut stream).unwrap();
        let head = Batch::decode(&bytes).unwrap().head;
        stream.write_all(&encode_ack(&head, 8000)).unwrap();
    });
    let shipped = shipper.close();
    reader.join().unwrap();
    assert_eq!((shipped.sent, shipped.lost), (8000, 1000));
}

#[test]
fn a_quiet_node_keeps_its_packets_for_an_analyzer_that_is_gone() {
    let mut shipper = Shipper::new(settings(RecordTransport::Tcp), Arc::default());
    shipper.follow(&[free_address()]).unwrap();
    // A quarter of an hour without packets, then a quarter of an hour with one packet every 100 ms.
    for now in 1..9000 {
        shipper.flush(Revision(1), now);
    }
    for number in 0..9000 {
        ship(&mut shipper, number..number + 1);
        shipper.flush(Revision(1), 9000 + number);
    }
    assert_eq!(shipper.shipped().lost, 0);
}

#[test]
fn another_list_of_analyzers_gives_nothing_up() {
    let to = free_address();
    let mut shipper = Shipper::new(settings(RecordTransport::Tcp), Arc::default());
    shipper.follow(&[to]).unwrap();
    ship_each(&mut shipper, 100);
    shipper
        .follow(&[to, "127.0.0.1:1".parse().unwrap()])
        .unwrap();
    // A thread that must end waits only 10 s for acknowledgements.
    std::thread::sleep(Duration::from_secs(11));
    shipper.flush(Revision(1), 0);
    let listener = TcpListener::bind(to).unwrap();
    let reader = std::thread::spawn(move || {
        // Two connections come: for the queue of the old list of analyzers, and for that of the new
        // list.
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut there = 0;
            while there < 100 {
                let Some(bytes) = message(&mut stream) else {
                    break;
                };
                let batch = Batch::decode(&bytes).unwrap();
                there += u64::from(batch.len());
                let next = batch.origin.sequence + 1;
                stream.write_all(&encode_ack(&batch.head, next)).unwrap();
            }
        }
    });
    let shipped = shipper.close();
    drop(reader);
    assert_eq!((shipped.sent, shipped.lost), (100, 0));
}

#[test]
fn what_an_analyzer_out_of_reach_did_not_get_is_counted() {
    let unused = free_address();
    let mut shipper = Shipper::new(settings(RecordTransport::Tcp), Arc::default());
    ship(&mut shipper, 0..5);
    shipper.follow(&[unused]).unwrap();
    ship(&mut shipper, 0..100);
    assert_eq!(shipper.close().lost, 105);
}

#[test]
fn the_papers_datagrams_have_28_headers_or_what_is_left() {
    let analyzer = UdpSocket::bind("127.0.0.1:0").unwrap();
    analyzer.set_read_timeout(Some(LIMIT)).unwrap();
    let to = [analyzer.local_addr().unwrap()];
    let mut datagram = [0; 2000];
    let mut shipper = Shipper::new(settings(RecordTransport::Dicap(None)), Arc::default());
    shipper.follow(&to).unwrap();
    ship(&mut shipper, 0..29);
    shipper.flush(Revision(1), 0);
    assert_eq!(shipper.close().sent, 29);
    let len = analyzer.recv(&mut datagram).unwrap();
    assert_eq!(headers_of(&datagram[..len]).unwrap().len(), 28);
    assert_eq!(analyzer.recv(&mut datagram).unwrap(), 52);
}

#[test]
fn an_analyzer_that_comes_back_gets_a_session_of_its_own() {
    let analyzers = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let mut shipper = Shipper::new(settings(RecordTransport::Tcp), Arc::default());
    let mut sessions = BTreeSet::new();
    let mut streams = Vec::new();
    for analyzer in [0, 1, 0].map(|at| &analyzers[at]) {
        shipper.follow(&[analyzer.local_addr().unwrap()]).unwrap();
        ship(&mut shipper, 0..3);
        shipper.flush(Revision(1), 9);
        let (mut stream, _) = analyzer.accept().unwrap();
        let bytes = message(&mut stream).unwrap();
        let batch = Batch::decode(&bytes).unwrap();
        // A new session's batches have numbers from 0 on. If the session had the same number as the
        // old session, the analyzer would take the batch for a repeat.
        assert_eq!((batch.len(), batch.origin.sequence), (3, 0));
        assert!(sessions.insert(batch.head.session), "{sessions:?}");
        stream.write_all(&encode_ack(&batch.head, 1)).unwrap();
        streams.push(stream);
    }
}

#[test]
fn the_newest_report_is_sent_beside_batches_as_soon_as_there_is_a_connection() {
    let to = free_address();
    let mut shipper = Shipper::new(settings(RecordTransport::Dicap(None)), Arc::default());
    shipper.follow(&[to]).unwrap();
    shipper.report(report(1));
    shipper.report(report(2));
    let listener = TcpListener::bind(to).unwrap();
    // The first message of each connection has the counts themselves, not differences.
    for newest in [2, 5] {
        let (mut stream, _) = listener.accept().unwrap();
        let mut decoder = CountsDecoder::default();
        let mut next = || decoder.decode(&message(&mut stream).unwrap()).unwrap();
        assert_eq!(next(), (Part::WHOLE, report(newest)));
        for later in [newest + 1, newest + 2] {
            shipper.report(report(later));
            assert_eq!(next(), (Part::WHOLE, report(later)));
        }
        drop(stream);
        await_broken(&shipper, newest);
        shipper.report(report(5));
    }
}

/// Waits until the shipper has noticed that its connection is gone.
fn await_broken(shipper: &Shipper, newest: u64) {
    let until = std::time::Instant::now() + LIMIT;
    while shipper.shipped().broken < 1 + u64::from(newest > 2) {
        assert!(std::time::Instant::now() < until, "still connected");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A report in which every count is `number` or a multiple of `number`.
fn report(number: u64) -> Report {
    Report {
        summary: Summary {
            node: NodeId(2),
            boot: 3,
            since: 0,
            stamp: number,
            revision: Revision(1),
            ring: 0,
            beacon: Beacon::default(),
        },
        seen: Box::new([3 * number; 4096]),
        captured: Box::new([2 * number; 4096]),
    }
}

#[test]
fn each_analyzer_gets_the_counts_of_its_buckets() {
    let analyzers = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let mut shipper = Shipper::new(settings(RecordTransport::Tcp), Arc::default());
    let addresses = analyzers.each_ref().map(|it| it.local_addr().unwrap());
    shipper.follow(&addresses).unwrap();
    shipper.report(report(1));
    for (place, analyzer) in analyzers.iter().enumerate() {
        let (mut stream, _) = analyzer.accept().unwrap();
        let bytes = message(&mut stream).unwrap();
        let (part, got) = CountsDecoder::default().decode(&bytes).unwrap();
        assert_eq!(Part::of(addresses[place], &addresses), Some(part));
        for (bucket, seen) in got.seen.iter().enumerate() {
            assert_eq!(*seen, if bucket % 3 == place { 3 } else { 0 });
        }
    }
}

#[test]
fn who_has_nothing_to_say_does_not_connect() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut shipper = Shipper::new(settings(RecordTransport::Tcp), Arc::default());
    shipper.follow(&[listener.local_addr().unwrap()]).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    listener.accept().unwrap_err();
    listener.set_nonblocking(false).unwrap();
    shipper.report(report(1));
    listener.accept().unwrap();
}

/// Waits until the shipper's problem contains `text`, and returns the problem.
fn trouble_with(shipper: &Shipper, text: &str) -> String {
    let until = std::time::Instant::now() + LIMIT;
    loop {
        let trouble = shipper.trouble();
        if trouble.contains(text) || std::time::Instant::now() > until {
            return trouble;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_connection_that_fails_has_a_reason_and_what_to_check() {
    let analyzer = free_address();
    let mut shipper = Shipper::new(settings(RecordTransport::Tcp), Arc::default());
    shipper.follow(&[analyzer]).unwrap();
    ship(&mut shipper, 0..10);
    shipper.flush(Revision(1), 0);
    let refused = trouble_with(&shipper, "no connection");
    assert!(
        refused.starts_with(&format!("analyzer {analyzer}: ")),
        "{refused}"
    );
    assert!(refused.contains("is the analyzer running"), "{refused}");
    // Now a listener accepts and closes connections, so the shipper gives another reason.
    let listener = TcpListener::bind(analyzer).unwrap();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let closed = trouble_with(&shipper, "closed");
    assert!(closed.contains("compare 'key_file'"), "{closed}");
}

#[test]
fn an_analyzer_that_acknowledges_nothing_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut shipper = Shipper::new(settings(RecordTransport::Tcp), Arc::default());
    shipper.follow(&[listener.local_addr().unwrap()]).unwrap();
    ship(&mut shipper, 0..10);
    shipper.flush(Revision(1), 0);
    let trouble = trouble_with(&shipper, "acknowledges nothing");
    assert!(trouble.contains("acknowledges nothing"), "{trouble}");
}
