//! Tests that the analyzer ends strangers' connections, so that nodes find free slots.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

use fanpcap_cluster::record::{Head, Kind, encode_ack};

use super::*;

/// Connects, and sends the pieces, twenty a second. Returns whether the analyzer ends the
/// connection.
fn is_ended_after<'a>(listen: SocketAddr, pieces: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut stream = TcpStream::connect(listen).unwrap();
    let pause = Duration::from_millis(50);
    stream.set_read_timeout(Some(pause)).unwrap();
    let until = Instant::now() + LIMIT;
    for piece in pieces.take_while(|_| Instant::now() < until) {
        let _ = stream.write_all(piece);
        match stream.read(&mut [0; 4096]) {
            Ok(1..) => thread::sleep(pause),
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {}
            Ok(0) | Err(_) => return true,
        }
    }
    false
}

/// Whether the analyzer ends a connection that sends these bytes one by one, and then only zeros.
fn is_ended(listen: SocketAddr, bytes: &[u8]) -> bool {
    let zeros = std::iter::repeat(&[0][..]);
    is_ended_after(listen, bytes.chunks(1).chain(zeros))
}

/// A message of this cluster.
fn message() -> Vec<u8> {
    let head = Head {
        kind: Kind::Ack,
        length: 0,
        cluster: 1,
        node: NodeId(1),
        boot: 1,
        session: 1,
    };
    encode_ack(&head, 1)
}

/// The beginning of a long message.
fn beginning() -> Vec<u8> {
    let mut message = message();
    message[8..12].copy_from_slice(&60_000_u32.to_be_bytes());
    message
}

#[test]
fn who_begins_a_message_and_goes_on_slowly_is_cut_off() {
    let listen = free_address();
    let _loop = analyzer_loop(listen, &ring(None), None, 1 << 30);
    assert!(is_ended(listen, &beginning()));
}

/// If a report is damaged or of another version, its sender does not count as a stranger.
#[test]
fn a_message_of_the_cluster_that_can_not_be_read_is_called_so() {
    let listen = free_address();
    let mut analyzer_loop = analyzer_loop(listen, &ring(None), None, 1 << 30);
    let (mut report, mut kind) = (message(), message());
    report[5] = 2;
    kind[5] = 9;
    for message in [report, kind] {
        let mut stream = TcpStream::connect(listen).unwrap();
        stream.write_all(&message).unwrap();
    }
    let status = work_until(&mut analyzer_loop, |status| {
        refused(status, Reason::Unreadable) == 2
    });
    assert_eq!(refused(&status, Reason::Unreadable), 2);
    assert_eq!(refused(&status, Reason::Foreign), 0);
}

#[test]
fn who_shakes_hands_slowly_is_cut_off() {
    let listen = free_address();
    let _loop = analyzer_loop(listen, &ring(Some(1)), None, 1 << 30);
    // The head of a TLS record that announces 16 KiB.
    assert!(is_ended(listen, &[0x16, 3, 1, 0x40, 0]));
}

/// How long a node takes to connect and to send ten records.
fn joins(
    analyzer_loop: &mut AnalyzerLoop,
    node: u32,
    listen: SocketAddr,
    keyring: &Arc<Keyring>,
) -> Duration {
    let before = analyzer_loop.close().counters.received;
    let begun = Instant::now();
    let mut node = shipper(node, RecordTransport::Tcp, listen, keyring);
    ship(&mut node, 10);
    node.flush(Revision(1), 0);
    let status = work_until(analyzer_loop, |status| {
        status.counters.received == before + 10
    });
    assert_eq!(status.counters.received, before + 10);
    begun.elapsed()
}

/// On an idle machine a node joins in much less than a second. A node whose connection is closed
/// for a stranger's tries again, and is closed again as long as strangers come.
const JOINS: Duration = Duration::from_secs(10);

/// Strangers connect from the same address as the nodes. All nodes can still connect. A counter
/// shows that there were more strangers than slots.
fn nodes_join_beside(strangers: u32, say: fn(&mut TcpStream)) {
    let listen = free_address();
    let keyring = keyring();
    let mut analyzer_loop = analyzer_loop(listen, &keyring, None, 1 << 30);
    for silent in [64, 256] {
        let connect = |_| TcpStream::connect(listen).unwrap();
        let _silent: Vec<TcpStream> = (0..silent).map(connect).collect();
        let took = joins(&mut analyzer_loop, silent, listen, &keyring);
        assert!(took < within(JOINS), "{silent} silent: {took:?}");
    }
    let have_joined = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&have_joined);
    let flood = thread::spawn(move || {
        let mut all = VecDeque::new();
        let mut left = strangers;
        while left > 0 || !is_over.load(Ordering::Relaxed) {
            all.extend(TcpStream::connect(listen));
            all.iter_mut().rev().take(20).for_each(say);
            all.drain(..all.len().saturating_sub(300));
            left = left.saturating_sub(1);
        }
    });
    for node in 1001..1006 {
        let took = joins(&mut analyzer_loop, node, listen, &keyring);
        assert!(took < within(JOINS), "{strangers} strangers: {took:?}");
    }
    have_joined.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    let status = analyzer_loop.close();
    assert!(refused(&status, Reason::Unproven) > 0);
    assert_eq!(refused(&status, Reason::Full), 0);
}

#[test]
fn nodes_join_beside_strangers() {
    nodes_join_beside(1000, |_| {});
}

/// The strangers send no TLS handshake, and do not read the answers.
#[test]
fn nodes_join_beside_strangers_that_go_on_sending() {
    nodes_join_beside(1000, |stranger| {
        let _ = stranger.write_all(b"GET / HTTP/1.0\r\n\r\n");
    });
}

mod long {
    #[test]
    #[ignore = "long: 10,000 connections"]
    fn nodes_join_beside_many_strangers() {
        super::nodes_join_beside(10_000, |_| {});
    }
}

/// A connected node keeps its connection while strangers connect.
#[test]
fn a_connected_node_keeps_its_connection_beside_a_flood() {
    let listen = free_address();
    let keyring = keyring();
    let mut analyzer_loop = analyzer_loop(listen, &keyring, None, 1 << 30);
    let mut node = shipper(1, RecordTransport::Tcp, listen, &keyring);
    ship(&mut node, 10);
    node.flush(Revision(1), 0);
    work_until(&mut analyzer_loop, |status| status.counters.received == 10);
    for _ in 0..1000 {
        let _ = TcpStream::connect(listen);
    }
    ship(&mut node, 10);
    node.flush(Revision(1), 0);
    let status = work_until(&mut analyzer_loop, |status| status.counters.received == 20);
    assert_eq!((status.counters.received, node.shipped().broken), (20, 0));
}

/// Strangers without a key send the same messages as a node.
#[test]
fn who_passes_for_nodes_keeps_no_node_away() {
    let listen = free_address();
    let keyring = ring(None);
    let mut analyzer_loop = analyzer_loop(listen, &keyring, None, 1 << 30);
    let connect = |_| {
        let mut stream = TcpStream::connect(listen).unwrap();
        stream.write_all(&message()).unwrap();
        stream
    };
    let _strangers: Vec<TcpStream> = (0..300).map(connect).collect();
    let status = work_until(&mut analyzer_loop, |status| {
        refused(status, Reason::Full) > 0
    });
    assert!(refused(&status, Reason::Full) > 0);
    joins(&mut analyzer_loop, 1, listen, &keyring);
}
