//! The generator's frames, and the sums that collectors must find.

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
    /// Bytes before the IP header; `None` if there is none.
    link: Option<usize>,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Frames and their bytes: all of them, and those that are IP, without what is before IP.
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

/// Frames with these numbers: TCP and UDP over IPv4 and IPv6.
pub(super) fn plain(numbers: Range<u64>) -> Result<Vec<Sent>> {
    let frames = Stage::frames(numbers)?.into_iter();
    let plain = |frame: traffic::Frame| Sent {
        bytes: frame.bytes,
        link: Some(ETHERNET),
    };
    Ok(frames.map(plain).collect())
}

/// The same, but an eighth of the frames have a VLAN tag, an eighth is not IP, and of an eighth
/// those over IPv4 are in fragments.
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

/// Sends frames. An analyzer exports what it sorts within 50 ms at once, so that faster packets
/// would not all find room in the collectors' sockets.
pub(super) fn send(frames: &[Sent]) -> Result<Sums> {
    let injector = Injector::open(WIRE)?;
    for part in frames.chunks(8) {
        injector.send_all(part)?;
        thread::sleep(Duration::from_millis(2));
    }
    Ok(Sums::of(frames))
}

/// Bytes of an Ethernet header, and where its type is.
const ETHERNET: usize = 14;
const TYPE: Range<usize> = 12..14;
/// VLAN 5 (802.1Q).
const TAG: [u8; 4] = [0x81, 0, 0, 5];
/// A type for experiments (802).
const EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];
