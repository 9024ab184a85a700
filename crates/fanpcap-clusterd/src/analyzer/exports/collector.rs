//! Exports packets to a collector, as IPFIX over UDP or TCP.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use fanpcap_ipfix::{Exporter, Packet, Selector, Statistics, Transport};

use super::Target;

/// A collector, and the exporter that sends to it.
#[derive(Debug)]
pub(super) struct Collector {
    exporter: Exporter,
    line: CollectorConnection,
    /// When a message that was not full was last sent.
    flushed: Duration,
}

/// How long records wait at most for a message to be full.
const FLUSH: Duration = Duration::from_millis(500);
/// The time between two attempts to connect.
const RETRY: Duration = Duration::from_secs(1);
/// How long a collector may take to accept a connection, or to read.
const PATIENCE: Duration = Duration::from_millis(500);
/// The time between the templates and the first records over UDP: see [`Exporter::describe`].
const HEAD_START: Duration = Duration::from_millis(100);

impl Collector {
    /// Opens the connection to a collector, for an observation domain. Over UDP that takes 100 ms.
    ///
    /// # Errors
    ///
    /// A socket can't be opened. A collector that is not there yet is no error.
    pub(super) fn open(target: &Target, domain: u32, now: Duration) -> io::Result<Self> {
        let link = match target.transport {
            Transport::Tcp => CollectorSocket::Tcp(None),
            Transport::Udp => CollectorSocket::Udp(udp(target.address)?),
        };
        let mut collector = Self {
            exporter: Exporter::new(domain, target.form, target.transport),
            line: CollectorConnection {
                address: target.address,
                link,
                next_try: Duration::ZERO,
                lost: 0,
            },
            flushed: now,
        };
        collector.connect(now);
        if target.transport == Transport::Udp {
            let line = &mut collector.line;
            collector
                .exporter
                .describe(now, &mut |message| line.send(message));
            thread::sleep(HEAD_START);
        }
        Ok(collector)
    }

    /// Exports a packet.
    pub(super) fn packet(&mut self, now: Duration, packet: &Packet<'_>) {
        let line = &mut self.line;
        self.exporter
            .packet(now, packet, &mut |message| line.send(message));
        self.tend(now);
    }

    /// Exports how a bucket is selected.
    pub(super) fn selector(&mut self, now: Duration, selector: &Selector) {
        let line = &mut self.line;
        self.exporter
            .selector(now, selector, &mut |message| line.send(message));
    }

    /// Exports what was counted for a bucket.
    pub(super) fn statistics(&mut self, now: Duration, statistics: &Statistics) {
        let line = &mut self.line;
        self.exporter
            .statistics(now, statistics, &mut |message| line.send(message));
    }

    /// Sends what has waited long enough, and connects again if there is no connection. The caller
    /// does so at least twice a second.
    pub(super) fn tend(&mut self, now: Duration) {
        self.connect(now);
        // A clock that was set back sends at once.
        if now < self.flushed || now - self.flushed >= FLUSH {
            self.flush(now);
        }
    }

    /// Sends what waits for a message to be full.
    pub(super) fn flush(&mut self, now: Duration) {
        let line = &mut self.line;
        self.exporter.flush(now, &mut |message| line.send(message));
        self.flushed = now;
    }

    /// Packets in messages, and messages that were lost: the collector refused or did not read, or
    /// there was no connection.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.exporter.totals().packets, self.line.lost)
    }

    fn connect(&mut self, now: Duration) {
        if self.line.connect(now) {
            self.exporter.restart();
        }
    }
}

/// The connection to a collector.
#[derive(Debug)]
struct CollectorConnection {
    address: SocketAddr,
    link: CollectorSocket,
    next_try: Duration,
    lost: u64,
}

#[derive(Debug)]
enum CollectorSocket {
    Udp(UdpSocket),
    Tcp(Option<TcpStream>),
}

impl CollectorConnection {
    fn send(&mut self, message: &[u8]) {
        let sent = match &mut self.link {
            CollectorSocket::Udp(socket) => socket.send(message).is_ok(),
            CollectorSocket::Tcp(stream) => {
                let sent = stream
                    .as_mut()
                    .is_some_and(|it| it.write_all(message).is_ok());
                // Part of a message may be on the way: the next one can't follow it.
                if !sent {
                    *stream = None;
                }
                sent
            }
        };
        self.lost += u64::from(!sent);
    }

    /// Connects if it is time to. Says whether there is a new connection.
    fn connect(&mut self, now: Duration) -> bool {
        let CollectorSocket::Tcp(stream @ None) = &mut self.link else {
            return false;
        };
        // A clock that was set back does not keep it waiting for long.
        if now < self.next_try && self.next_try - now <= RETRY {
            return false;
        }
        self.next_try = now + RETRY;
        *stream = tcp(self.address).ok();
        stream.is_some()
    }
}

/// A socket with the local address that the route to the collector has.
fn udp(collector: SocketAddr) -> io::Result<UdpSocket> {
    let any = match collector {
        SocketAddr::V4(_) => "0.0.0.0:0",
        SocketAddr::V6(_) => "[::]:0",
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(collector)?;
    // A collector that does not read must not stop the capture.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn tcp(collector: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&collector, PATIENCE)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use fanpcap_ipfix::Form;

    use super::*;

    fn open(transport: Transport, address: SocketAddr) -> Collector {
        let target = Target {
            transport,
            address,
            form: Form::Sections,
        };
        Collector::open(&target, 0, at(0)).unwrap()
    }

    fn packet(frame: &[u8]) -> Packet<'_> {
        Packet {
            time: Duration::from_secs(1),
            wire_len: 60,
            frame,
            revision: 1,
            bucket: 2,
            digest: 3,
        }
    }

    const fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(1_000_000 + milliseconds)
    }

    fn header(message: &[u8]) -> (u16, u32) {
        let number = |from: usize, len: usize| {
            let bytes = &message[from..from + len];
            bytes
                .iter()
                .fold(0, |sum, byte| (sum << 8) | u32::from(*byte))
        };
        (u16::try_from(number(0, 2)).unwrap(), number(8, 4))
    }

    #[test]
    fn datagrams_begin_with_templates_and_wait_for_company() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let address = socket.local_addr().unwrap();
        let mut collector = open(Transport::Udp, address);
        for number in 0..3 {
            collector.packet(at(number), &packet(&[1; 60]));
        }
        let mut message = [0; 1500];
        let templates = socket.recv(&mut message).unwrap();
        assert_eq!(message[16..18], [0, 2], "{templates} bytes");
        assert_eq!(collector.counts(), (3, 0));
        collector.tend(at(501));
        socket.recv(&mut message).unwrap();
        assert_eq!(header(&message), (10, 0));
        collector.packet(at(502), &packet(&[1; 60]));
        collector.flush(at(503));
        socket.recv(&mut message).unwrap();
        assert_eq!(header(&message), (10, 3));
        assert_eq!(collector.counts(), (4, 0));
    }

    #[test]
    fn a_collector_that_comes_back_gets_the_templates_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut collector = open(Transport::Tcp, address);
        let first = || {
            let mut stream = listener.accept().unwrap().0;
            let mut begin = [0; 18];
            stream.read_exact(&mut begin).unwrap();
            (header(&begin), begin[16..].to_vec())
        };
        collector.packet(at(0), &packet(&[1]));
        collector.flush(at(1));
        assert_eq!(first(), ((10, 0), vec![0, 2]));
        // The collector is gone: the kernel says so with the second message at the latest.
        let mut time = 1;
        while collector.counts().1 == 0 {
            time += 10;
            assert!(time < 500, "no message was refused");
            thread::sleep(Duration::from_millis(10));
            collector.packet(at(time), &packet(&[1]));
            collector.flush(at(time));
        }
        collector.tend(at(time + 1));
        collector.packet(at(time + 1100), &packet(&[1]));
        collector.flush(at(time + 1101));
        assert_eq!(first(), ((10, 0), vec![0, 2]));
    }

    #[test]
    fn without_a_collector_messages_are_lost_and_counted() {
        let gone = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let mut collector = open(Transport::Tcp, gone);
        collector.packet(at(0), &packet(&[1]));
        collector.flush(at(1));
        assert!(collector.counts().1 > 0);
    }
}
