//! Sends packets that contain their number, at a constant rate.

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use fanpcap_buckets::layout::BUCKETS;
use fanpcap_gen::headers::{self, IPV4, Ipv4};
use fanpcap_select::{Keys, Selection};
use fanpcap_testkit::Injector;
use fanpcap_testkit::mirror::{WIRE, WIRE2};
use fanpcap_wire::Frame;

/// Packets a second, unless a test sets another rate.
pub(crate) const RATE: u64 = 42_000;

/// Maximum number of packets that are sent at once, because a node's queue holds only 256 packets.
const BURST: u64 = 32;

const TICK: Duration = Duration::from_micros(500);

/// A running sender.
pub(crate) struct Sender {
    stop: Arc<AtomicBool>,
    next: Arc<AtomicU64>,
    thread: JoinHandle<Result<(u64, Duration)>>,
}

/// The number of connections whose packets come on two legs, one for each direction.
const FLOWS: u64 = 512;

impl Sender {
    /// Sends packets on a device of the calling thread's namespace, numbered from `first` on.
    pub(crate) fn start(device: &'static str, first: u64, rate: u64) -> Self {
        Self::on(&[device], first, u64::MAX, rate)
    }

    /// Sends packets of connections on two legs. One direction has even numbers and is sent on
    /// [`WIRE`]; the other direction is sent on [`WIRE2`].
    pub(crate) fn of_two_legs(first: u64, rate: u64) -> Self {
        Self::on(&[WIRE, WIRE2], first, u64::MAX, rate)
    }

    /// Sends only `few` different packets, again and again.
    pub(crate) fn of_few(device: &'static str, first: u64, few: u64) -> Self {
        Self::on(&[device], first, few, RATE)
    }

    fn on(devices: &[&'static str], first: u64, few: u64, rate: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let next = Arc::new(AtomicU64::new(first));
        let (until, at, devices) = (Arc::clone(&stop), Arc::clone(&next), devices.to_vec());
        let thread = thread::spawn(move || send(&devices, (&at, few, rate), &until));
        Self { stop, next, thread }
    }

    /// The number of the next packet.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Stops the sender. Returns the number of the next packet, and for how long packets were sent.
    pub(crate) fn stop(self) -> Result<(u64, Duration)> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended.map_err(|_| anyhow!("the sender panicked"))?
    }
}

fn send(
    devices: &[&str],
    (at, few, rate): (&AtomicU64, u64, u64),
    stop: &AtomicBool,
) -> Result<(u64, Duration)> {
    let opened = devices.iter().map(|it| Injector::open(it));
    let injectors = opened.collect::<io::Result<Vec<Injector>>>()?;
    let template = template();
    let begun = Instant::now();
    let first = at.load(Ordering::Relaxed);
    let mut next = first;
    while !stop.load(Ordering::Relaxed) {
        let due = first + u64::try_from(begun.elapsed().as_micros())? * rate / 1_000_000;
        // After a pause, no more than a burst is sent at once. So a machine that is too slow sends
        // fewer packets.
        if next < due {
            let end = due.min(next + BURST);
            let numbers = (next..end).map(|it| first + (it - first) % few);
            if let [injector] = injectors.as_slice() {
                let frames: Vec<Vec<u8>> = numbers.map(|it| numbered(&template, it)).collect();
                injector.send_all(&frames)?;
            } else {
                for number in numbers {
                    let leg = usize::from(number % 2 == 1);
                    injectors[leg].send_all(&[directed(&template, number)])?;
                }
            }
            next = end;
            at.store(next, Ordering::Relaxed);
        }
        thread::sleep(TICK);
    }
    Ok((next, begun.elapsed()))
}

/// A datagram without a checksum, so that a number can be written into it.
fn template() -> Vec<u8> {
    let ends = (
        Ipv4Addr::new(198, 51, 100, 1),
        Ipv4Addr::new(203, 0, 113, 1),
    );
    let mut payload = vec![0; 8];
    payload.extend(MARK);
    payload.extend([0; 8]);
    let segment = headers::udp((40_000, 443), &payload);
    let packet = Ipv4 {
        ends,
        protocol: headers::UDP,
        identification: 0,
        fragment: 0,
    };
    headers::ethernet(MACS[0], MACS[1], IPV4, &packet.around(&segment))
}

/// Writes the number in two places: in the bytes that the selection reads, and after the mark. The
/// selection's hash covers only the payload's first 3 bytes ([`fanpcap_select::PAYLOAD`]), so the
/// payload begins with the number in little-endian order.
fn numbered(template: &[u8], number: u64) -> Vec<u8> {
    let mut frame = template.to_vec();
    frame[NUMBER..NUMBER + 8].copy_from_slice(&number.to_le_bytes());
    frame[NUMBER + 12..NUMBER + 20].copy_from_slice(&number.to_be_bytes());
    frame
}

/// A numbered packet of one of [`FLOWS`]. Even numbers go in one direction, odd numbers in the
/// other.
fn directed(template: &[u8], number: u64) -> Vec<u8> {
    let mut frame = numbered(template, number);
    // The checksum of the header does not change when the two addresses are swapped.
    let flow = u16::try_from(number / 2 % FLOWS).unwrap_or(0);
    frame[NUMBER - 8..NUMBER - 6].copy_from_slice(&(40_000 + flow).to_be_bytes());
    if number % 2 == 1 {
        for (at, len) in [(0, 6), (NUMBER - 16, 4), (NUMBER - 8, 2)] {
            let (one, other) = frame[at..at + 2 * len].split_at_mut(len);
            one.swap_with_slice(other);
        }
    }
    frame
}

/// The number in a captured packet; `None` if no [`Sender`] sent the packet.
pub(crate) fn number(captured: &[u8]) -> Option<u64> {
    let bytes = captured.get(NUMBER..NUMBER + 12)?;
    let (number, mark) = bytes.split_at(8);
    (mark == MARK).then_some(u64::from_le_bytes(number.try_into().ok()?))
}

/// The buckets of the packets with these numbers.
pub(crate) fn buckets(
    selection: Selection,
    numbers: impl IntoIterator<Item = u64>,
) -> impl Iterator<Item = usize> {
    let template = template();
    let mut keys = Keys::new(selection);
    numbers.into_iter().map(move |number| {
        let bytes = &numbered(&template, number);
        keys.number(&Frame { bytes, tag: None }, 0).bucket
    })
}

/// The number's offset: after the headers of Ethernet, IPv4 and UDP.
const NUMBER: usize = 14 + 20 + 8;
/// These bytes follow the number in each packet of a [`Sender`].
const MARK: [u8; 4] = *b"FANP";
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]];

#[test]
fn a_packet_has_its_number() {
    for it in [0, 77, 1 << 40] {
        let frame = numbered(&template(), it);
        assert_eq!(number(&frame), Some(it));
        assert_eq!(fanpcap_testkit::traffic::sequence_of(&frame), Some(it));
    }
}

#[test]
fn packets_are_in_all_buckets() {
    let found: BTreeSet<usize> = buckets(Selection::default(), 0..100_000).collect();
    assert_eq!(found.len(), BUCKETS);
}
