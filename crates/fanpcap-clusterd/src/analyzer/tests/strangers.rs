//! Connections of strangers end, and leave places to nodes.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use fanpcap_cluster::record::{Head, Kind, encode_number};

use super::tls::{Authority, DAYS};
use super::*;

/// Sends a byte twenty times a second, and returns whether the connection was ended.
fn is_ended(listen: SocketAddr, bytes: &[u8]) -> bool {
    let mut stream = TcpStream::connect(listen).unwrap();
    let pause = Duration::from_millis(50);
    stream.set_read_timeout(Some(pause)).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    for byte in bytes.iter().chain(std::iter::repeat(&0)) {
        match stream.read(&mut [0]) {
            Ok(1..) => {}
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {}
            Ok(0) | Err(_) => return true,
        }
        if Instant::now() > until {
            return false;
        }
        let _ = stream.write_all(&[*byte]);
    }
    false
}

/// The beginning of a long message that nobody has sealed.
fn beginning() -> Vec<u8> {
    let head = Head {
        kind: Kind::Hello,
        length: 0,
        cluster: 1,
        node: NodeId(1),
        boot: 1,
        session: 1,
    };
    let mut message = encode_number(&head, Kind::Hello, 1);
    message[8..12].copy_from_slice(&60_000_u32.to_be_bytes());
    message
}

#[test]
fn who_begins_a_message_and_goes_on_slowly_is_cut_off() {
    let listen = free_port();
    let _desk = desk(listen, &keyring(), None, 1 << 30);
    assert!(is_ended(listen, &beginning()));
}

#[test]
fn who_shakes_hands_slowly_is_cut_off() {
    let Some(authority) = Authority::new() else {
        return;
    };
    let listen = free_port();
    authority.make("ca", "analyzer", "127.0.0.1", DAYS);
    let _desk = desk(listen, &authority.ring("analyzer"), None, 1 << 30);
    // A handshake's record of 16 KiB.
    assert!(is_ended(listen, &[0x16, 3, 1, 0x40, 0]));
}

#[test]
fn silent_connections_keep_no_node_away() {
    let listen = free_port();
    let keyring = keyring();
    let mut desk = desk(listen, &keyring, None, 1 << 30);
    let silent = (0..300).map(|_| TcpStream::connect(listen).unwrap());
    let _silent: Vec<TcpStream> = silent.collect();
    let mut node = shipper(1, Way::Tcp, listen, &keyring);
    ship(&mut node, 10);
    let status = work_until(&mut desk, |status| status.counters.delivered == 10);
    assert_eq!(status.counters.delivered, 10);
}
