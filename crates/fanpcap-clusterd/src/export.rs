//! Sends what was captured to a collector of others, as IPFIX over UDP or TCP.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use fanpcap_ipfix::{Exporter, Packet, Resend, Selector, Settings, Statistics, Totals};

/// How messages get to the collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// A datagram a message. What is lost on the way, the collector counts.
    Udp,
    /// A connection. While there is none, messages are lost and counted here.
    Tcp,
}

/// A collector, and the exporter that sends to it.
#[derive(Debug)]
pub struct Collector {
    exporter: Exporter,
    line: Line,
    /// When a message was sent last that was not full.
    flushed: Duration,
}

/// What became of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Delivery {
    /// Handed to the kernel.
    pub sent: u64,
    /// Not sent: the collector refused or did not read, or there was no connection.
    pub lost: u64,
}

/// How long records wait at most for a message to be full.
const FLUSH: Duration = Duration::from_millis(500);
/// Between two attempts to connect.
const RETRY: Duration = Duration::from_secs(1);
/// How long a collector may take to accept a connection, or to read.
const PATIENCE: Duration = Duration::from_millis(500);
/// Between the templates and the first records over UDP: see [`Exporter::describe`].
const HEAD_START: Duration = Duration::from_millis(100);

impl Collector {
    /// Opens the way to a collector. Over UDP that takes 100 ms. Over TCP `resend` does not count:
    /// each connection begins with the templates.
    ///
    /// # Errors
    /// The settings allow no messages, or a socket can't be opened. A collector that is not there
    /// yet is none.
    pub fn open(
        transport: Transport,
        address: SocketAddr,
        settings: Settings,
        now: Duration,
    ) -> Result<Self> {
        let (link, resend) = match transport {
            Transport::Tcp => (Link::Tcp(None), Resend::Never),
            Transport::Udp => {
                let socket = udp(address);
                let socket = socket.map_err(|error| anyhow!("a socket to {address}: {error}"))?;
                (Link::Udp(socket), settings.resend)
            }
        };
        let settings = Settings { resend, ..settings };
        let mut collector = Self {
            exporter: Exporter::new(settings)?,
            line: Line {
                address,
                link,
                next_try: Duration::ZERO,
                delivery: Delivery::default(),
            },
            flushed: now,
        };
        collector.connect(now);
        if transport == Transport::Udp {
            let line = &mut collector.line;
            collector
                .exporter
                .describe(now, &mut |message| line.send(message));
            thread::sleep(HEAD_START);
        }
        Ok(collector)
    }

    /// Exports a packet.
    pub fn packet(&mut self, now: Duration, packet: &Packet<'_>) {
        let line = &mut self.line;
        self.exporter
            .packet(now, packet, &mut |message| line.send(message));
        self.tend(now);
    }

    /// Exports how a bucket is selected.
    pub fn selector(&mut self, now: Duration, selector: &Selector) {
        let line = &mut self.line;
        self.exporter
            .selector(now, selector, &mut |message| line.send(message));
    }

    /// Exports what was counted for a bucket.
    pub fn statistics(&mut self, now: Duration, statistics: &Statistics) {
        let line = &mut self.line;
        self.exporter
            .statistics(now, statistics, &mut |message| line.send(message));
    }

    /// Sends what has waited for long enough, and connects again where there is no connection. The
    /// caller does so at least twice a second.
    pub fn tend(&mut self, now: Duration) {
        self.connect(now);
        // A clock that was set back sends at once.
        if now < self.flushed || now - self.flushed >= FLUSH {
            self.flush(now);
        }
    }

    /// Sends what waits for a message to be full.
    pub fn flush(&mut self, now: Duration) {
        let line = &mut self.line;
        self.exporter.flush(now, &mut |message| line.send(message));
        self.flushed = now;
    }

    /// What was exported.
    pub fn totals(&self) -> Totals {
        self.exporter.totals()
    }

    /// What became of the messages.
    pub fn delivery(&self) -> Delivery {
        self.line.delivery
    }

    fn connect(&mut self, now: Duration) {
        if self.line.connect(now) {
            self.exporter.restart();
        }
    }
}

/// The way to a collector.
#[derive(Debug)]
struct Line {
    address: SocketAddr,
    link: Link,
    next_try: Duration,
    delivery: Delivery,
}

#[derive(Debug)]
enum Link {
    Udp(UdpSocket),
    Tcp(Option<TcpStream>),
}

impl Line {
    fn send(&mut self, message: &[u8]) {
        let sent = match &mut self.link {
            Link::Udp(socket) => socket.send(message).is_ok(),
            Link::Tcp(stream) => {
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
        let Delivery { sent: all, lost } = &mut self.delivery;
        *(if sent { all } else { lost }) += 1;
    }

    /// Connects if it is time to. Says whether there is a new connection.
    fn connect(&mut self, now: Duration) -> bool {
        let Link::Tcp(stream @ None) = &mut self.link else {
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

/// A socket from whatever address the route to the collector gives.
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

    use super::*;

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
        let open = Collector::open(Transport::Udp, address, Settings::default(), at(0));
        let mut collector = open.unwrap();
        for number in 0..3 {
            collector.packet(at(number), &packet(&[1; 60]));
        }
        let mut message = [0; 1500];
        let templates = socket.recv(&mut message).unwrap();
        assert_eq!(message[16..18], [0, 2], "{templates} bytes");
        assert_eq!(collector.delivery(), Delivery { sent: 1, lost: 0 });
        collector.tend(at(501));
        socket.recv(&mut message).unwrap();
        assert_eq!(header(&message), (10, 0));
        collector.packet(at(502), &packet(&[1; 60]));
        collector.flush(at(503));
        socket.recv(&mut message).unwrap();
        assert_eq!(header(&message), (10, 3));
        assert_eq!(collector.totals().packets, 4);
    }

    #[test]
    fn a_collector_that_comes_back_gets_the_templates_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let open = Collector::open(Transport::Tcp, address, Settings::default(), at(0));
        let mut collector = open.unwrap();
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
        while collector.delivery().lost == 0 {
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
        let open = Collector::open(Transport::Tcp, gone, Settings::default(), at(0));
        let mut collector = open.unwrap();
        collector.packet(at(0), &packet(&[1]));
        collector.flush(at(1));
        let Delivery { sent, lost } = collector.delivery();
        assert!(sent == 0 && lost > 0);
    }
}
