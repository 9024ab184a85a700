//! A lane's datagrams: sealed where there is a key, and kept until the analyzer has given a token.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fanpcap_cluster::record::Head;

use crate::keyring::Keyring;
use crate::welcome::{ANSWER, ANSWERS, Access};

/// Batches that are kept until the analyzer has given a token.
const KEPT: usize = 1024;

/// How long a lane that ends waits for the token.
const PATIENCE: Duration = Duration::from_millis(500);

/// Datagrams to one analyzer.
#[derive(Debug)]
pub(super) struct Datagrams {
    socket: UdpSocket,
    keyring: Arc<Keyring>,
    head: Head,
    access: Access,
    kept: VecDeque<(u64, Vec<u8>)>,
    /// Records that were sent, and that were lost.
    pub(super) sent: u64,
    pub(super) lost: u64,
}

impl Datagrams {
    pub(super) fn open(to: SocketAddr, head: Head, keyring: Arc<Keyring>) -> io::Result<Self> {
        let mut datagrams = Self {
            socket: socket(to)?,
            keyring,
            head,
            access: Access::default(),
            kept: VecDeque::new(),
            sent: 0,
            lost: 0,
        };
        datagrams.heed();
        Ok(datagrams)
    }

    /// Sends a batch of so many records.
    pub(super) fn send(&mut self, records: u64, bytes: Vec<u8>) {
        if !self.keyring.has_keys() {
            return self.put(records, &bytes);
        }
        if !self.access.is_valid() {
            self.heed();
        }
        if self.access.is_valid() {
            return self.put_sealed(records, bytes);
        }
        if self.kept.len() >= KEPT {
            self.lost += records;
        } else {
            self.kept.push_back((records, bytes));
        }
    }

    /// Takes the analyzer's answers and asks for what is lacking. Call it ten times a second.
    pub(super) fn heed(&mut self) {
        let keyring = Arc::clone(&self.keyring);
        keyring.with(|keys| {
            let Some(keys) = keys else {
                return;
            };
            let mut answer = [0; ANSWER];
            for _ in 0..ANSWERS {
                let Ok(length) = self.socket.recv(&mut answer) else {
                    break;
                };
                self.access.hear(keys, &self.head, &answer[..length]);
            }
            if let Some(hello) = self.access.ask(keys, &self.head) {
                let _ = self.socket.send(&hello);
            }
        });
        if self.access.is_valid() {
            while let Some((records, bytes)) = self.kept.pop_front() {
                self.put_sealed(records, bytes);
            }
        }
    }

    /// Waits a moment for a token, if there is something to send.
    pub(super) fn close(mut self) -> (u64, u64) {
        let until = Instant::now() + PATIENCE;
        while !self.kept.is_empty() && Instant::now() < until {
            thread::sleep(Duration::from_millis(2));
            self.heed();
        }
        let kept: u64 = self.kept.iter().map(|(records, _)| records).sum();
        (self.sent, self.lost + kept)
    }

    fn put_sealed(&mut self, records: u64, mut bytes: Vec<u8>) {
        self.keyring.with(|keys| {
            if let Some(keys) = keys {
                self.access.seal(keys, &mut bytes);
            }
        });
        self.put(records, &bytes);
    }

    fn put(&mut self, records: u64, bytes: &[u8]) {
        match self.socket.send(bytes) {
            Ok(_) => self.sent += records,
            Err(_) => self.lost += records,
        }
    }
}

/// A socket that sends to an analyzer and never waits.
pub(super) fn socket(to: SocketAddr) -> io::Result<UdpSocket> {
    let socket = match to {
        SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?,
        SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?,
    };
    socket.connect(to)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
