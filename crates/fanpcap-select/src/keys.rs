//! Finds a packet's bucket by the selection's key.

use fanpcap_buckets::layout::{BUCKETS, bucket};
use fanpcap_steer::native::{Decision, Evaluator, Packet};
use fanpcap_steer::{Error, ir::Tree, modes};
use fanpcap_wire::{Frame, Header, Layers};

use crate::digest::digest;
use crate::{Key, Selection, bob};

/// The bucket of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Number {
    /// The packet's bucket.
    pub bucket: usize,
    /// Whether the packet lacks the fields of its key. With [`Key::Packet`], such a packet is not
    /// an IP packet. With [`Key::Identification`], it has no identification, and its bucket is
    /// chosen as with [`Key::Packet`].
    pub is_other: bool,
}

/// Computes packets' keys, and remembers what is needed from earlier packets.
#[derive(Clone, Debug)]
pub struct Keys {
    selection: Selection,
    /// Evaluates the steering program of flows.
    flows: Option<Evaluator>,
    /// The number of packets since the last update in the stream.
    turns: u32,
}

/// The steering program that selects flows, as in fanpcap groups for which no mode is set.
pub(crate) fn flow_tree() -> Option<Tree> {
    let refused: fanpcap_steer::PcapCompiler<'_> = &|_| Err(String::new());
    let tree: Result<Tree, Error> = fanpcap_steer::tree(modes::source("flow")?, refused);
    tree.ok()
}

/// The factor for a flow's hash after XOR with `initial`. The product's upper bits are the bucket.
pub(crate) const FLOW_FACTOR: u32 = 0x9e37_79b1;
pub(crate) const FLOW_SHIFT: u32 = 20;
const _: () = assert!(BUCKETS == 1 << (u32::BITS - FLOW_SHIFT));

impl Keys {
    /// The state for this selection before the first packet.
    pub fn new(selection: Selection) -> Self {
        let flows = flow_tree().filter(|_| selection.key == Key::Flow);
        Self {
            selection,
            flows: flows.as_ref().map(Evaluator::of_group),
            turns: 0,
        }
    }

    /// Counts packets from 0 again, because a topology update came in the mirrored stream.
    pub fn restart(&mut self) {
        self.turns = 0;
    }

    /// The bucket of the next packet. `now_ns` is the time by any monotonic clock. By this clock,
    /// fragments get the bucket of their datagram only for a limited time.
    pub fn number(&mut self, frame: &Frame<'_>, now_ns: u64) -> Number {
        let initial = self.selection.initial;
        let own = match self.selection.key {
            Key::Packet => None,
            Key::Flow => self.flow(frame, now_ns),
            Key::RoundRobin => {
                self.turns = self.turns.wrapping_add(1);
                Some(self.turns)
            }
            Key::Identification => {
                identification(frame).map(|id| bob::hash(&id.to_be_bytes(), initial))
            }
        };
        if let Some(own) = own {
            return Number {
                bucket: bucket(own),
                is_other: false,
            };
        }
        self.by_content(frame)
    }

    /// The bucket of a packet that lacks the fields of its key, chosen by the packet's content.
    fn by_content(&self, frame: &Frame<'_>) -> Number {
        let (hash, is_ip) = digest(frame, self.selection.initial);
        Number {
            bucket: bucket(hash),
            is_other: !is_ip || self.selection.key != Key::Packet,
        }
    }

    /// The bucket of a frame that looks like a coordinator's frame and was not accepted. Round
    /// robin does not count this frame, so nodes that accept the frame and nodes that refuse it
    /// count alike.
    pub fn of_forged(&mut self, frame: &Frame<'_>, now_ns: u64) -> Number {
        match self.selection.key {
            Key::RoundRobin => self.by_content(frame),
            Key::Packet | Key::Flow | Key::Identification => self.number(frame, now_ns),
        }
    }

    fn flow(&mut self, frame: &Frame<'_>, now_ns: u64) -> Option<u32> {
        let packet = Packet {
            now_ns,
            ..Packet::of(*frame)
        };
        let hash = match self.flows.as_mut()?.decide(&packet) {
            Decision::Steer(hash) => hash,
            // Only frames without an Ethernet header lead to these decisions.
            Decision::Drop
            | Decision::Copy
            | Decision::Member(_)
            | Decision::Double(..)
            | Decision::Broadcast => 0,
        };
        let mixed = (hash ^ self.selection.initial).wrapping_mul(FLOW_FACTOR);
        Some(mixed >> FLOW_SHIFT)
    }
}

/// The identification of an IPv4 packet. 0 counts as none, because hosts may write 0 into packets
/// that are never fragmented (RFC 6864). About a fifth of all packets have the value 0.
fn identification(frame: &Frame<'_>) -> Option<u16> {
    match Layers::of(frame).ip()?.header {
        Header::V4(header) => Some(header.id()).filter(|id| *id != 0),
        Header::V6(_) => None,
    }
}

#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "small numbers"
)]
mod tests {
    use super::*;
    use fanpcap_testkit::frames;

    fn numbers(key: Key, packets: &[Vec<u8>]) -> Vec<Number> {
        let mut keys = Keys::new(Selection { key, initial: 77 });
        let frames = packets.iter().map(|bytes| Frame { bytes, tag: None });
        frames.map(|frame| keys.number(&frame, 0)).collect()
    }

    fn own(bucket: usize) -> Number {
        Number {
            bucket,
            is_other: false,
        }
    }

    fn datagram(id: u16, from: u16, to: u16) -> Vec<u8> {
        let mut packet = frames::v4(17, 0, &frames::udp(from, to, &[0; 22]));
        packet[4..6].copy_from_slice(&id.to_be_bytes());
        frames::ethernet(0x0800, &packet)
    }

    /// How many packets more than the mean the busiest of eight nodes gets, divided by the mean. In
    /// this traffic, a few flows are large.
    fn imbalance(key: Key) -> f64 {
        const PACKETS: u64 = 200_000;
        let mix = fanpcap_gen::Description {
            flows: 5000,
            ..fanpcap_gen::Description::default()
        };
        let pool = mix.pool().unwrap();
        let mut keys = Keys::new(Selection { key, initial: 3 });
        let mut nodes = [0_u32; 8];
        for number in 0..PACKETS {
            let mut bytes = pool.frame(number);
            // The packet gets a counter as its identification, or 0 in a fifth of the packets. Four
            // bytes of the payload vary like TCP's sequence numbers.
            let id = if number % 5 == 0 { 0 } else { number as u16 };
            bytes[18..20].copy_from_slice(&id.to_be_bytes());
            if let Some(word) = bytes.get_mut(38..42) {
                word.copy_from_slice(&(number as u32).wrapping_mul(1460).to_be_bytes());
            }
            let frame = Frame {
                bytes: &bytes,
                tag: None,
            };
            nodes[keys.number(&frame, 0).bucket % 8] += 1;
        }
        let mean = PACKETS as f64 / 8.0;
        f64::from(nodes.into_iter().max().unwrap()) / mean - 1.0
    }

    #[test]
    fn eight_nodes_share_packets_evenly() {
        for key in [Key::Packet, Key::RoundRobin, Key::Identification] {
            let imbalance = imbalance(key);
            println!("{key:?}: {:.2} %", imbalance * 100.0);
            assert!(imbalance <= 0.02, "{key:?}");
        }
        println!("{:?}: {:.2} %", Key::Flow, imbalance(Key::Flow) * 100.0);
    }

    #[test]
    fn packets_have_their_turns() {
        let packets = vec![datagram(1, 1, 2); 3];
        let turns = numbers(Key::RoundRobin, &packets);
        assert_eq!(turns, [own(1), own(2), own(3)]);
        let mut keys = Keys::new(Selection {
            key: Key::RoundRobin,
            initial: 0,
        });
        let frame = Frame::default();
        keys.number(&frame, 0);
        keys.restart();
        assert_eq!(keys.number(&frame, 0), own(1));
    }

    #[test]
    fn both_directions_of_a_flow_have_one_bucket() {
        let mut back = datagram(2, 2000, 1000);
        let (from, to) = (back[26..30].to_vec(), back[30..34].to_vec());
        back[26..30].copy_from_slice(&to);
        back[30..34].copy_from_slice(&from);
        let packets = [datagram(1, 1000, 2000), back, datagram(3, 1001, 2000)];
        let buckets = numbers(Key::Flow, &packets);
        assert_eq!(buckets[0], buckets[1]);
        assert_ne!(buckets[0], buckets[2]);
    }

    #[test]
    fn packets_without_identification_go_by_their_content() {
        let packets = [
            datagram(7, 1, 2),
            datagram(7, 3, 4),
            datagram(0, 1, 2),
            datagram(0, 3, 4),
        ];
        let found = numbers(Key::Identification, &packets);
        assert_eq!(found[0], found[1]);
        assert!(!found[0].is_other && found[2].is_other && found[3].is_other);
        let content = numbers(Key::Packet, &packets);
        assert_eq!(found[2].bucket, content[2].bucket);
        assert_ne!(found[2].bucket, found[3].bucket);
        assert!(content.iter().all(|number| !number.is_other));
    }
}
