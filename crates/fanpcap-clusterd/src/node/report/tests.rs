//! Analyzers that are followed, left, and followed again.

use fanpcap_cluster::control::{Key, Keys};
use fanpcap_cluster::sealed::{Entry, Gate, Refusal, SEAL_BYTES};

use super::*;

/// How long a datagram over loopback may take.
const LIMIT: Duration = Duration::from_secs(60);

fn keyring() -> Arc<Keyring> {
    Arc::new(Keyring::new(Some(Keys {
        current: Key::new(vec![1; 32]).unwrap(),
        other: None,
    })))
}

fn reporter(keyring: &Arc<Keyring>) -> Reporter {
    let announcement = Announcement {
        node: NodeId(7),
        boot: 1,
        weight: 1,
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 9)),
    };
    let from = Ipv4Addr::LOCALHOST.into();
    Reporter::new(1, announcement, from, Arc::clone(keyring))
}

fn counts() -> Report {
    let none = || Box::new([0; fanpcap_buckets::layout::BUCKETS]);
    Report {
        summary: Summary {
            node: NodeId(7),
            boot: 1,
            since: 1,
            stamp: 2,
            revision: Revision(1),
            ring: 0,
            marked: 0,
            beacon: Beacon::default(),
        },
        seen: none(),
        captured: none(),
    }
}

/// An analyzer's gate, and its socket.
struct Analyzer {
    socket: UdpSocket,
    gate: Gate,
    keyring: Arc<Keyring>,
}

impl Analyzer {
    fn new(secret: u8, keyring: &Arc<Keyring>) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Self {
            socket,
            gate: Gate::new(1, [secret; 32]),
            keyring: Arc::clone(keyring),
        }
    }

    fn address(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }

    /// Takes the next datagram. Returns whether it is a message that is believed; a question is
    /// answered.
    fn take(&mut self) -> Result<bool, Refusal> {
        let mut bytes = [0; 2000];
        let (length, from) = self.socket.recv_from(&mut bytes).unwrap();
        let (gate, socket) = (&mut self.gate, &self.socket);
        self.keyring
            .with(|keys| match gate.open(keys, &bytes[..length])? {
                Entry::Message(message) => {
                    assert_eq!(message.len() + SEAL_BYTES, length);
                    Ok(true)
                }
                Entry::Answer(answer) => {
                    socket.send_to(&answer, from).unwrap();
                    Ok(false)
                }
                Entry::Stale(_) => Err(Refusal::Stale),
            })
    }

    /// Lets a reporter follow this analyzer only, and send its counts once. Returns how many of the
    /// datagrams were believed.
    fn follow(&mut self, reporter: &mut Reporter) -> Result<usize, Refusal> {
        reporter.follow(&[self.address()]);
        reporter.heed();
        if !reporter.analyzers[0].1.is_valid() {
            assert!(!self.take()?, "no question came first");
        }
        let until = Instant::now() + LIMIT;
        while !reporter.analyzers[0].1.is_valid() && Instant::now() < until {
            reporter.heed();
        }
        reporter.send(&counts());
        let mut believed = 0;
        while believed < DATAGRAMS {
            believed += usize::from(self.take()?);
        }
        Ok(believed)
    }
}

/// Datagrams of a report.
const DATAGRAMS: usize = fanpcap_buckets::layout::BUCKETS.div_ceil(BUCKETS);

#[test]
fn an_analyzer_that_comes_back_believes_the_counts_again() {
    let keyring = keyring();
    let mut reporter = reporter(&keyring);
    let mut analyzers = [1, 2].map(|secret| Analyzer::new(secret, &keyring));
    for at in [0, 1, 0, 1, 1] {
        let believed = analyzers[at].follow(&mut reporter);
        assert_eq!(believed, Ok(DATAGRAMS), "analyzer {at}");
    }
}

#[test]
fn so_many_analyzers_of_before_are_remembered() {
    let keyring = keyring();
    let mut reporter = reporter(&keyring);
    let mut first = Analyzer::new(1, &keyring);
    assert_eq!(first.follow(&mut reporter), Ok(DATAGRAMS));
    for port in 0..100 {
        reporter.follow(&[SocketAddr::from((Ipv4Addr::LOCALHOST, 1 + port))]);
        assert!(reporter.former.len() <= FORMER);
        let is_known = reporter.former.iter().any(|(it, _)| *it == first.address());
        assert_eq!(is_known, usize::from(port) < FORMER, "{port}");
    }
}

#[test]
fn counts_are_told_with_the_time_when_they_were_read() {
    // Stopped while it read first, the clock set back while it read next.
    let mut times = [1, 2_000_000_000, 2_000_000_001, 5, 6, 7].into_iter();
    let mut readings = 0..;
    let told = at_one_time(|| readings.next(), || times.next().unwrap());
    assert_eq!(told, Some((2, 7)));
    let mut stopped = (0..).map(|reading| reading * (AT_ONCE + 1));
    let told = at_one_time(|| readings.next(), || stopped.next().unwrap());
    assert_eq!(told, None);
    assert_eq!(at_one_time(|| None::<()>, || 0), None);
}
