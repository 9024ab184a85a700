//! The frames that the generator sends, and the sums over them that collectors must find.

use std::ops::{AddAssign, Range};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use fanpcap_testkit::mirror::WIRE;
use fanpcap_testkit::{Injector, traffic};

use crate::stage::Stage;

/// A frame to send.
pub(super) struct Sent {
    bytes: Vec<u8>,
    /// How many bytes precede the IP header; `None` if the frame has no IP header.
    link: Option<usize>,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Sums over all frames, and sums over the IP packets without the bytes before the IP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Sums {
    pub(super) frames: u64,
    pub(super) octets: u64,
    pub(super) ip_packets: u64,
    pub(super) ip_octets: u64,
}

impl Sums {
    pub(super) fn of<'a>(frames: impl IntoIterator<Item = &'a Sent>) -> Self {
        let mut sums = Self::default();
        for frame in frames {
            sums.frames += 1;
            sums.octets += frame.bytes.len() as u64;
            if let Some(link) = frame.link {
                sums.ip_packets += 1;
                sums.ip_octets += (frame.bytes.len() - link) as u64;
            }
        }
        sums
    }
}

impl AddAssign for Sums {
    fn add_assign(&mut self, more: Self) {
        self.frames += more.frames;
        self.octets += more.octets;
        self.ip_packets += more.ip_packets;
        self.ip_octets += more.ip_octets;
    }
}

/// Frames with these packet numbers: TCP and UDP over IPv4 and IPv6.
pub(super) fn plain(numbers: Range<u64>) -> Result<Vec<Sent>> {
    let frames = Stage::frames(numbers)?.into_iter();
    let plain = |frame: traffic::Frame| Sent {
        bytes: frame.bytes,
        link: Some(ETHERNET),
    };
    Ok(frames.map(plain).collect())
}

/// Frames with these numbers. Of eight frames, one has a VLAN tag, one is not IP, and one is sent
/// in fragments if it is IPv4.
pub(super) fn mixed(numbers: Range<u64>) -> Result<Vec<Sent>> {
    let mut all = Vec::new();
    for frame in Stage::frames(numbers)? {
        let is_ipv4 = frame.flow.client.is_ipv4();
        let number = frame.sequence % 8;
        let mut bytes = frame.bytes.clone();
        let link = match number {
            5 => {
                bytes.splice(TYPE.start..TYPE.start, TAG);
                Some(ETHERNET + TAG.len())
            }
            6 if is_ipv4 => {
                let parts = traffic::fragments(&frame, 48)?.into_iter();
                all.extend(parts.map(|part| Sent {
                    bytes: part.bytes,
                    link: Some(ETHERNET),
                }));
                continue;
            }
            7 => {
                bytes[TYPE].copy_from_slice(&EXPERIMENTAL);
                None
            }
            _ => Some(ETHERNET),
        };
        all.push(Sent { bytes, link });
    }
    Ok(all)
}

/// Sends frames slowly. An analyzer exports the packets of 50 ms in one burst, so faster packets
/// would overflow the collectors' sockets.
pub(super) fn send(frames: &[Sent]) -> Result<Sums> {
    let injector = Injector::open(WIRE)?;
    for part in frames.chunks(8) {
        injector.send_all(part)?;
        thread::sleep(Duration::from_millis(2));
    }
    Ok(Sums::of(frames))
}

/// The length of an Ethernet header, and the offset of its type.
const ETHERNET: usize = 14;
const TYPE: Range<usize> = 12..14;
/// The tag of VLAN 5 (802.1Q).
const TAG: [u8; 4] = [0x81, 0, 0, 5];
/// An Ethernet type for experiments (802).
const EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];
