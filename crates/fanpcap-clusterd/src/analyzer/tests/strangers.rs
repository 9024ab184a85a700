//! Connections of strangers end, and leave places to nodes.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use fanpcap_cluster::record::{ACK_BYTES, Head, Kind, encode_number};
use fanpcap_cluster::sealed::{Pass, SEAL_BYTES};

use super::tls::{Authority, DAYS};
use super::*;

/// What became of a connection.
struct Fate {
    is_ended: bool,
    /// Bytes that the analyzer answered.
    answered: usize,
}

/// Connects and sends a piece twenty times a second, until the connection is ended.
fn send_slowly<'a>(listen: SocketAddr, pieces: impl Iterator<Item = &'a [u8]>) -> Fate {
    let mut stream = TcpStream::connect(listen).unwrap();
    let pause = Duration::from_millis(50);
    stream.set_read_timeout(Some(pause)).unwrap();
    let until = Instant::now() + LIMIT;
    let mut fate = Fate {
        is_ended: false,
        answered: 0,
    };
    for piece in pieces.take_while(|_| Instant::now() < until) {
        let _ = stream.write_all(piece);
        match stream.read(&mut [0; 4096]) {
            Ok(length @ 1..) => {
                fate.answered += length;
                thread::sleep(pause);
            }
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {}
            Ok(0) | Err(_) => {
                fate.is_ended = true;
                break;
            }
        }
    }
    fate
}

/// Whether a connection is ended that brings these bytes one by one, and zeros without end.
fn is_ended(listen: SocketAddr, bytes: &[u8]) -> bool {
    let zeros = std::iter::repeat(&[0][..]);
    send_slowly(listen, bytes.chunks(1).chain(zeros)).is_ended
}

fn head() -> Head {
    Head {
        kind: Kind::Hello,
        length: 0,
        cluster: 1,
        node: NodeId(1),
        boot: 1,
        session: 1,
    }
}

/// The beginning of a long message that nobody has sealed.
fn beginning() -> Vec<u8> {
    let mut message = encode_number(&head(), Kind::Hello, 1);
    message[8..12].copy_from_slice(&60_000_u32.to_be_bytes());
    message
}

#[test]
fn who_begins_a_message_and_goes_on_slowly_is_cut_off() {
    let listen = free_address();
    let _desk = desk(listen, &keyring(), None, 1 << 30);
    assert!(is_ended(listen, &beginning()));
}

/// Each hello is a whole message, and answered: no wait for a message's end is ever too long.
#[test]
fn who_repeats_a_nodes_hello_and_proves_nothing_is_cut_off() {
    let listen = free_address();
    let keyring = ring(Some(1));
    let hello = keyring.with(|keys| Pass::default().ask(keys.unwrap(), &head(), 7));
    let _desk = desk(listen, &keyring, None, 1 << 30);
    let fate = send_slowly(listen, std::iter::repeat(&hello[..]));
    assert!(fate.answered >= ACK_BYTES + SEAL_BYTES, "{}", fate.answered);
    assert!(fate.is_ended);
}

#[test]
fn who_shakes_hands_slowly_is_cut_off() {
    let Some(authority) = Authority::new() else {
        return;
    };
    let listen = free_address();
    authority.make("ca", "analyzer", &listen.ip().to_string(), DAYS);
    let _desk = desk(listen, &authority.ring("analyzer"), None, 1 << 30);
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
