//! Exports packets to a collector, as IPFIX over UDP or TCP.

use std::io;
use std::thread;
use std::time::Duration;

use fanpcap_cluster::Revision;
use fanpcap_ipfix::{Exporter, Packet, Selector, Statistics, Totals, Transport};

use super::Target;
use super::connection::{CollectorConnection, HEAD_START, Outcome};

/// A collector, and the exporter that sends to it.
#[derive(Debug)]
pub(super) struct Collector {
    exporter: Exporter,
    connection: CollectorConnection,
    transport: Transport,
    /// When a partly filled message was last sent.
    flushed: Duration,
    /// When the templates were sent. The collector needs the templates before other records.
    opened: Duration,
    /// The topology whose selectors were exported, and the time of that export. A collector that
    /// was restarted since then lacks the selectors.
    described: Option<(Revision, Duration)>,
}

/// The longest time that a record waits for its message to become full.
const FLUSH: Duration = Duration::from_millis(500);
/// The time between sending the templates and sending the first selectors. On a busy machine,
/// `GoFlow2` may read templates more than 100 ms after they came.
const SETTLE: Duration = Duration::from_secs(1);
/// Over UDP, selectors are exported again after this time, because UDP may lose them.
const REPEAT: Duration = Duration::from_secs(600);

impl Collector {
    /// Opens the connection to a collector, for an observation domain. Over UDP, this takes 100 ms.
    /// It is no error if the collector does not run yet.
    pub(super) fn open(target: &Target, domain: u32, now: Duration) -> io::Result<Self> {
        let mut collector = Self {
            exporter: Exporter::new(domain, target.form, target.transport),
            connection: CollectorConnection::open(target)?,
            transport: target.transport,
            flushed: now,
            opened: now,
            described: None,
        };
        collector.connect(now);
        if target.transport == Transport::Udp {
            let connection = &mut collector.connection;
            collector
                .exporter
                .describe(now, &mut |message| connection.send(message));
            thread::sleep(HEAD_START);
        }
        Ok(collector)
    }

    pub(super) fn packet(&mut self, now: Duration, packet: &Packet<'_>) {
        let connection = &mut self.connection;
        self.exporter
            .packet(now, packet, &mut |message| connection.send(message));
        self.tend(now);
    }

    pub(super) fn selector(&mut self, now: Duration, selector: &Selector) {
        let connection = &mut self.connection;
        self.exporter
            .selector(now, selector, &mut |message| connection.send(message));
    }

    pub(super) fn statistics(&mut self, now: Duration, statistics: &Statistics) {
        let connection = &mut self.connection;
        self.exporter
            .statistics(now, statistics, &mut |message| connection.send(message));
    }

    /// Whether the collector lacks the selectors of this topology. If this returns `true`, the
    /// caller must send the selectors by [`Collector::selector`]. `describe` already counts them as
    /// sent.
    pub(super) fn describe(&mut self, now: Duration, revision: Revision) -> bool {
        let is_described = self.described.is_some_and(|(last, at)| {
            let is_old = now < at || now - at >= REPEAT;
            last == revision && !(is_old && self.transport == Transport::Udp)
        });
        let is_new = now >= self.opened && now - self.opened < SETTLE;
        if is_described || is_new || !self.connection.is_open() {
            return false;
        }
        self.described = Some((revision, now));
        true
    }

    /// Sends records that have waited long enough, and connects again if there is no connection.
    /// The caller calls this at least twice a second.
    pub(super) fn tend(&mut self, now: Duration) {
        self.connect(now);
        // If the clock was set back, waiting records are sent at once.
        if now < self.flushed || now - self.flushed >= FLUSH {
            self.flush(now);
        }
    }

    /// Sends the records that wait for their message to become full, and the templates when due. A
    /// collector that restarts while no packets come needs the templates before the first packet.
    pub(super) fn flush(&mut self, now: Duration) {
        let connection = &mut self.connection;
        connection.check();
        if connection.is_open() {
            self.exporter
                .describe_again(now, &mut |message| connection.send(message));
        }
        self.exporter
            .flush(now, &mut |message| connection.send(message));
        self.flushed = now;
    }

    /// How many packets were exported, left out and shortened, and how many messages were lost.
    pub(super) fn counts(&self) -> [u64; 4] {
        let Totals {
            packets,
            left_out,
            cut,
        } = self.exporter.totals();
        [packets, left_out, cut, self.connection.lost]
    }

    fn connect(&mut self, now: Duration) {
        match self.connection.connect(now) {
            Outcome::Unchanged => return,
            Outcome::Connected => self.exporter.restart(),
            Outcome::ProbeDue => {
                let connection = &mut self.connection;
                self.exporter
                    .describe(now, &mut |message| connection.probe(message, now));
                return;
            }
            Outcome::Reachable => {}
        }
        self.opened = now;
        self.described = None;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{SocketAddr, TcpListener, UdpSocket};

    use fanpcap_ipfix::Form;
    use fanpcap_testkit::await_for::LIMIT;
    use fanpcap_testkit::loopback::free_address;

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
        assert_eq!(collector.counts(), [3, 0, 0, 0]);
        collector.tend(at(501));
        socket.recv(&mut message).unwrap();
        assert_eq!(header(&message), (10, 0));
        collector.packet(at(502), &packet(&[1; 60]));
        collector.flush(at(503));
        socket.recv(&mut message).unwrap();
        assert_eq!(header(&message), (10, 3));
        assert_eq!(collector.counts(), [4, 0, 0, 0]);
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
        // `tend` notices that the collector has closed the connection, before a message is lost.
        collector.tend(at(1001));
        collector.tend(at(1002));
        collector.packet(at(1003), &packet(&[1]));
        collector.flush(at(1004));
        assert_eq!(first(), ((10, 0), vec![0, 2]));
        assert_eq!(collector.counts(), [2, 0, 0, 0]);
    }

    #[test]
    fn a_listener_that_comes_back_gets_the_templates_before_packets() {
        let address = free_address();
        let listener = UdpSocket::bind(address).unwrap();
        let mut collector = open(Transport::Udp, address);
        assert!(!collector.describe(at(999), Revision(1)));
        assert!(collector.describe(at(1000), Revision(1)));
        assert!(!collector.describe(at(1000), Revision(1)));
        drop(listener);
        for number in 1..=3 {
            let time = at(1000 + 10 * number);
            collector.packet(time, &packet(&[1]));
            collector.flush(time);
        }
        // The collector's machine has refused the first message, so the others were not sent.
        assert_eq!(collector.counts(), [3, 0, 0, 3]);
        assert!(!collector.describe(at(1040), Revision(1)));
        let listener = UdpSocket::bind(address).unwrap();
        listener.set_read_timeout(Some(LIMIT)).unwrap();
        collector.tend(at(1200));
        collector.tend(at(2100));
        let mut message = [0; 1500];
        listener.recv(&mut message).unwrap();
        assert_eq!(message[16..18], [0, 2]);
        collector.tend(at(2200));
        collector.packet(at(2201), &packet(&[1]));
        collector.flush(at(2201));
        listener.recv(&mut message).unwrap();
        assert_eq!((header(&message), message[16]), ((10, 3), 1));
        assert!(collector.describe(at(3200), Revision(1)));
        assert_eq!(collector.counts(), [4, 0, 0, 3]);
    }

    #[test]
    fn templates_and_selectors_are_repeated_over_udp_without_packets() {
        let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
        listener.set_read_timeout(Some(LIMIT)).unwrap();
        let mut collector = open(Transport::Udp, listener.local_addr().unwrap());
        assert!(collector.describe(at(1000), Revision(1)));
        let mut message = [0; 1500];
        listener.recv(&mut message).unwrap();
        collector.tend(at(19_999));
        collector.tend(at(20_500));
        listener.recv(&mut message).unwrap();
        assert_eq!(message[16..18], [0, 2]);
        listener.set_nonblocking(true).unwrap();
        assert!(listener.recv(&mut message).is_err());
        assert!(!collector.describe(at(600_999), Revision(1)));
        assert!(collector.describe(at(601_000), Revision(1)));
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
        assert!(collector.counts()[3] > 0);
    }
}
