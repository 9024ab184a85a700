//! The packets of the comparisons. They are drawn, are fragments of drawn packets, or come from
//! capture files.

use std::fmt;
use std::path::{Path, PathBuf};

use fanpcap_gen::Records;
use fanpcap_steer_testkit::{Draw, packets, tape};
use fanpcap_wire::{Frame, Layers};

/// A packet with the metadata that BPF_PROG_TEST_RUN can give it. It has no tag outside `bytes`, no
/// queue and no hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shot {
    pub(crate) bytes: Vec<u8>,
    /// The kernel's mark.
    pub(crate) mark: u32,
}

/// Drawn packets, and the numbers of packets from which metadata was left out.
#[derive(Default)]
pub(crate) struct Drawn {
    pub(crate) shots: Vec<Shot>,
    /// Three numbers of packets: those that had a tag outside the frame's bytes, those with a
    /// queue, and those with a hash. A [`Shot`] can't have such metadata.
    pub(crate) beside: [u64; 3],
}

/// Draws `count` packets from this seed. Before one in eight packets, fragments of the packet come
/// in one of several orders.
pub(crate) fn drawn(seed: u64, count: usize) -> Drawn {
    let mut drawn = Drawn::default();
    for number in 0.. {
        if drawn.shots.len() >= count {
            break;
        }
        let tape = tape((seed << 20) | number, 420);
        let mut draw = Draw::new(&tape);
        let made = packets::packet(&mut draw);
        let beside = [made.tag.is_some(), made.queue.is_some(), made.hash != 0];
        for (sum, is) in drawn.beside.iter_mut().zip(beside) {
            *sum += u64::from(is);
        }
        let shot = Shot {
            bytes: made.bytes,
            mark: made.mark.unwrap_or(0),
        };
        // The last two bytes of the tape are still unused, because the packet is drawn from the
        // bytes before them.
        let [.., choice, order] = tape[..] else {
            continue;
        };
        if choice % 8 == 0 {
            drawn.shots.extend(fragments(&shot, order));
        }
        drawn.shots.push(shot);
    }
    drawn.shots.truncate(count);
    drawn
}

/// The first, a later and the last fragment of one datagram, made from the packet, in one of
/// several orders.
fn fragments(shot: &Shot, order: u8) -> Vec<Shot> {
    const ORDERS: [[u16; 4]; 6] = [
        [0, 185, 370, 185],
        [185, 0, 370, 0],
        [370, 185, 0, 370],
        [0, 370, 0, 185],
        [185, 370, 185, 0],
        [0, 0, 185, 370],
    ];
    let offsets = ORDERS[usize::from(order) % ORDERS.len()];
    let fragment = |offset| fragment(&shot.bytes, offset).map(|bytes| Shot { bytes, ..*shot });
    offsets.into_iter().filter_map(fragment).collect()
}

/// The frame with its outer IP packet as a fragment at this offset. `None` if the frame has no IP
/// header that can be changed into a fragment's header.
fn fragment(frame: &[u8], offset: u16) -> Option<Vec<u8>> {
    let layers = Layers::of(&Frame {
        bytes: frame,
        tag: None,
    });
    let ip = layers.ip()?;
    let more = offset != 370;
    let (address, field) = match ip.source() {
        std::net::IpAddr::V4(source) => {
            (source.octets().to_vec(), (u16::from(more) << 13) | offset)
        }
        std::net::IpAddr::V6(source) => (source.octets().to_vec(), u16::from(more) | (offset << 3)),
    };
    let mut bytes = frame.to_vec();
    let source = frame
        .windows(address.len())
        .position(|part| part == address)?;
    let at = match ip.source() {
        std::net::IpAddr::V4(_) => source.checked_sub(6)?,
        std::net::IpAddr::V6(_) => {
            let header = source.checked_sub(8)?;
            let next = std::mem::replace(bytes.get_mut(header + 6)?, 44);
            if next != 44 {
                bytes.splice(header + 40..header + 40, [next, 0, 0, 0, 0, 0, 0, 1]);
            }
            header + 42
        }
    };
    bytes
        .get_mut(at..at + 2)?
        .copy_from_slice(&field.to_be_bytes());
    Some(bytes)
}

/// The reason why the test does not run a BPF program on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Untried {
    /// The frame is shorter than an Ethernet header.
    Runt,
    /// The frame has the type of IPv4, and is shorter than an IPv4 header.
    Ipv4,
    /// The frame has the type of IPv6, and is shorter than an IPv6 header.
    Ipv6,
    /// The frame does not fit into the page of a trial.
    Long,
}

impl Shot {
    /// The frame.
    pub(crate) fn frame(&self) -> Frame<'_> {
        Frame {
            bytes: &self.bytes,
            tag: None,
        }
    }

    /// The reason why the test does not run a BPF program on the packet; `None` if it does.
    /// `is_socket` is whether the program runs at a socket.
    pub(crate) fn untried(&self, is_socket: bool) -> Option<Untried> {
        let len = self.bytes.len();
        let ether_type = self.bytes.get(12..14);
        match ether_type {
            None => Some(Untried::Runt),
            Some([0x08, 0x00]) if is_socket && len < 34 => Some(Untried::Ipv4),
            Some([0x86, 0xdd]) if is_socket && len < 54 => Some(Untried::Ipv6),
            Some(_) => (len > 3000).then_some(Untried::Long),
        }
    }
}

/// The frames of a capture file whose link type is Ethernet.
pub(crate) fn captured(path: &Path) -> Result<Vec<Shot>, String> {
    let records = Records::open(path).map_err(|error| error.to_string())?;
    let shots = records.map(|record| {
        let bytes = record.map_err(|error| error.to_string())?.bytes;
        Ok(Shot { bytes, mark: 0 })
    });
    shots.collect()
}

/// All files of a directory and of its subdirectories.
pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        let entries = std::fs::read_dir(&directory).unwrap();
        for entry in entries.map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                left.push(entry.path());
            } else {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

impl fmt::Display for Shot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in &self.bytes {
            write!(f, "{byte:02x}")?;
        }
        write!(f, " ({} bytes), mark {}", self.bytes.len(), self.mark)
    }
}
