//! Frames that the coordinator sends into the monitored link: beacons and topology updates.
//!
//! | bytes | |
//! | --- | --- |
//! | 0-13 | Ethernet header; the type is [`ETHER_TYPE`] |
//! | 14 | [`VERSION`] |
//! | 15 | kind: 1 beacon, 2 topology update |
//! | 16-17 | 0 |
//! | 18-21 | cluster |
//! | 22-29 | sequence |
//! | 30-37 | time: nanoseconds of TAI |
//! | 38-45 | one-time number |
//!
//! All numbers are in network byte order. Zeros fill the frame up to 60 bytes. One VLAN tag may
//! precede the type. Anybody on the link can send such a frame. So each frame has a number that
//! only the cluster knows in advance. A node's agent announces the number for each sequence to the
//! BPF program. The BPF program accepts a frame only with the number announced for the frame's
//! sequence, and accepts no number twice.

use fanpcap_wire::number::{ETHER_TAG, ETHER_TAG_SERVICE};

/// Ethernet type for local experiments (IEEE 802).
pub const ETHER_TYPE: u16 = 0x88b5;

/// The version of the layout.
pub const VERSION: u8 = 1;

/// The length of a frame in bytes.
pub const LEN: usize = 60;

/// The length of the part of a frame that is used, in bytes.
pub(crate) const USED: usize = 46;

/// How many numbers of each [`Kind`] are kept. A number's index is its frame's sequence modulo 64.
pub const NUMBERS: usize = 64;

/// The purpose of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Shows that the mirror port works, and how far the nodes' clocks differ.
    Beacon,
    /// At this frame the announced topology takes effect, and round robin counts from 0 again.
    Update,
}

/// The content of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InLine {
    /// The purpose of the frame.
    pub kind: Kind,
    /// The number that identifies the cluster.
    pub cluster: u32,
    /// The sequence number, a count of seconds. Frames of the same kind have different sequences.
    pub sequence: u64,
    /// When the frame was sent, in nanoseconds of TAI.
    pub time_ns: u64,
    /// The number that was announced for the frame. It is never 0.
    pub number: u64,
}

/// The announced numbers of beacons and of updates, by sequence; 0 where no number is announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Announced {
    beacons: [u64; NUMBERS],
    updates: [u64; NUMBERS],
}

impl Default for Announced {
    fn default() -> Self {
        Self {
            beacons: [0; NUMBERS],
            updates: [0; NUMBERS],
        }
    }
}

impl Kind {
    /// The byte that stands for this kind in a frame.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Beacon => 1,
            Self::Update => 2,
        }
    }
}

impl InLine {
    /// Encodes the frame with these Ethernet addresses.
    pub fn encode(&self, destination: [u8; 6], source: [u8; 6]) -> [u8; LEN] {
        let mut frame = [0; LEN];
        let content = [
            &destination[..],
            &source,
            &ETHER_TYPE.to_be_bytes(),
            &[VERSION, self.kind.number(), 0, 0],
            &self.cluster.to_be_bytes(),
            &self.sequence.to_be_bytes(),
            &self.time_ns.to_be_bytes(),
            &self.number.to_be_bytes(),
        ];
        for (place, byte) in frame.iter_mut().zip(content.concat()) {
            *place = byte;
        }
        frame
    }
}

/// Decodes a frame of this version and cluster; `None` for others. The kind is `None` if unknown.
pub(crate) fn decode(frame: &[u8], cluster: u32) -> Option<(Option<Kind>, InLine)> {
    let mut rest = frame.get(12..)?;
    let is_tag =
        |bytes: &[u8; 2]| [ETHER_TAG, ETHER_TAG_SERVICE].contains(&u16::from_be_bytes(*bytes));
    if is_tag(rest.first_chunk()?) {
        rest = rest.get(4..)?;
    }
    let (kind, rest) = rest.split_first_chunk()?;
    let (&[version, which, ..], rest) = rest.split_first_chunk::<4>()?;
    let (of, rest) = rest.split_first_chunk()?;
    let is_ours = u16::from_be_bytes(*kind) == ETHER_TYPE
        && version == VERSION
        && u32::from_be_bytes(*of) == cluster;
    let (sequence, rest) = rest.split_first_chunk()?;
    let (time_ns, rest) = rest.split_first_chunk()?;
    let number = rest.first_chunk()?;
    let known = [Kind::Beacon, Kind::Update];
    let known = known.into_iter().find(|kind| kind.number() == which);
    let content = InLine {
        kind: known.unwrap_or(Kind::Beacon),
        cluster,
        sequence: u64::from_be_bytes(*sequence),
        time_ns: u64::from_be_bytes(*time_ns),
        number: u64::from_be_bytes(*number),
    };
    is_ours.then_some((known, content))
}

impl Announced {
    /// Announces the number of the frame with this sequence.
    pub fn announce(&mut self, kind: Kind, sequence: u64, number: u64) {
        let numbers = match kind {
            Kind::Beacon => &mut self.beacons,
            Kind::Update => &mut self.updates,
        };
        if let Some(place) = numbers.get_mut(place(sequence)) {
            *place = number;
        }
    }

    /// Returns whether the frame's number was announced. Removes an announced number, so that its
    /// frame is accepted only once.
    pub fn take(&mut self, kind: Option<Kind>, frame: &InLine) -> bool {
        let numbers = match kind {
            Some(Kind::Beacon) => Some(&mut self.beacons),
            Some(Kind::Update) => Some(&mut self.updates),
            None => None,
        };
        match numbers.and_then(|numbers| numbers.get_mut(place(frame.sequence))) {
            Some(announced) if *announced == frame.number && *announced != 0 => {
                *announced = 0;
                true
            }
            Some(_) | None => false,
        }
    }
}

/// The index at which the number for this sequence is stored.
pub fn place(sequence: u64) -> usize {
    usize::try_from(sequence % NUMBERS as u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(kind: Kind, sequence: u64, number: u64) -> InLine {
        InLine {
            kind,
            cluster: 9,
            sequence,
            time_ns: 1,
            number,
        }
    }

    #[test]
    fn a_number_is_taken_once() {
        let mut announced = Announced::default();
        announced.announce(Kind::Beacon, 5, 11);
        announced.announce(Kind::Beacon, 67, 33);
        announced.announce(Kind::Update, 0, 5);
        let mut take = |frame: &InLine| announced.take(Some(frame.kind), frame);
        assert!(!take(&frame(Kind::Beacon, 5, 12)), "another number");
        assert!(!take(&frame(Kind::Beacon, 3, 11)), "another sequence");
        assert!(!take(&frame(Kind::Beacon, 4, 0)), "no number was announced");
        assert!(take(&frame(Kind::Beacon, 5, 11)));
        assert!(!take(&frame(Kind::Beacon, 5, 11)), "replayed");
        assert!(!take(&frame(Kind::Update, 3, 33)), "another kind");
        assert!(take(&frame(Kind::Update, 0, 5)));
        assert!(!take(&frame(Kind::Update, 0, 5)), "replayed");
        assert!(!announced.take(None, &frame(Kind::Beacon, 3, 33)));
        assert!(announced.take(Some(Kind::Beacon), &frame(Kind::Beacon, 3, 33)));
    }

    #[test]
    fn frames_of_others_are_no_frames_of_ours() {
        let whole = frame(Kind::Beacon, 1, 2).encode([1; 6], [2; 6]);
        assert!(decode(&whole, 9).is_some());
        assert_eq!(decode(&whole, 8), None);
        for (at, value) in [(12, 0x08), (14, 2), (21, 8)] {
            let mut other = whole;
            other[at] = value;
            assert_eq!(decode(&other, 9), None, "byte {at}");
        }
        for len in 0..USED {
            assert_eq!(decode(&whole[..len], 9), None);
        }
        let mut unknown = whole;
        unknown[15] = 3;
        assert_eq!(decode(&unknown, 9).unwrap().0, None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            (is_beacon, is_tagged) in any::<(bool, bool)>(),
            (cluster, sequence, time_ns, number) in any::<(u32, u64, u64, u64)>(),
        ) {
            let kind = if is_beacon { Kind::Beacon } else { Kind::Update };
            let content = InLine { kind, cluster, sequence, time_ns, number };
            let mut bytes = content.encode([1; 6], [2; 6]).to_vec();
            if is_tagged {
                bytes.splice(12..12, [0x81, 0, 0, 7]);
            }
            prop_assert_eq!(decode(&bytes, cluster), Some((Some(kind), content)));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(&bytes, 0);
        }
    }
}
