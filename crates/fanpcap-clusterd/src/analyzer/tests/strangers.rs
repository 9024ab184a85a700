//! Connections of strangers end, and leave places to nodes.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use fanpcap_cluster::record::{Head, Kind, encode_ack};

use super::*;

/// Connects and sends a piece twenty times a second. Returns whether the connection is ended.
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

/// Whether a connection is ended that brings these bytes one by one, and zeros without end.
fn is_ended(listen: SocketAddr, bytes: &[u8]) -> bool {
    let zeros = std::iter::repeat(&[0][..]);
    is_ended_after(listen, bytes.chunks(1).chain(zeros))
}

/// The beginning of a long message.
fn beginning() -> Vec<u8> {
    let head = Head {
        kind: Kind::Ack,
        length: 0,
        cluster: 1,
        node: NodeId(1),
        boot: 1,
        session: 1,
    };
    let mut message = encode_ack(&head, 1);
    message[8..12].copy_from_slice(&60_000_u32.to_be_bytes());
    message
}

#[test]
fn who_begins_a_message_and_goes_on_slowly_is_cut_off() {
    let listen = free_address();
    let _desk = desk(listen, &ring(None), None, 1 << 30);
    assert!(is_ended(listen, &beginning()));
}

#[test]
fn who_shakes_hands_slowly_is_cut_off() {
    let listen = free_address();
    let _desk = desk(listen, &ring(Some(1)), None, 1 << 30);
    // A handshake's record of 16 KiB.
    assert!(is_ended(listen, &[0x16, 3, 1, 0x40, 0]));
}

#[test]
fn silent_connections_keep_no_node_away() {
    let listen = free_address();
    let keyring = keyring();
    let mut desk = desk(listen, &keyring, None, 1 << 30);
    let silent = (0..300).map(|_| TcpStream::connect(listen).unwrap());
    let _silent: Vec<TcpStream> = silent.collect();
    let mut node = shipper(1, Way::Tcp, listen, &keyring);
    ship(&mut node, 10);
    let status = work_until(&mut desk, |status| status.counters.delivered == 10);
    assert_eq!(status.counters.delivered, 10);
}
