//! Records which member got which flow. Flows are sampled by their hash, so that the memory is
//! bounded and all members sample the same flows.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fanpcap_wire::FlowKey;

use crate::flow::{flow_of, layers};

/// The most flows that a member keeps.
const KEPT: usize = 16_384;

/// A sample of all flows: the flows whose hash ends in at least this many zero bits.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample(Arc<AtomicU32>);

impl Sample {
    fn zeros(&self) -> u32 {
        // Relaxed is enough: a member that reads the new value late only forgets its flows late.
        self.0.load(Ordering::Relaxed)
    }

    /// The sample contains one in this many flows.
    pub(super) fn one_in(&self) -> u64 {
        1_u64.checked_shl(self.zeros()).unwrap_or(u64::MAX)
    }
}

/// The flows of one member.
#[derive(Debug, Default)]
pub(super) struct Flows {
    sample: Sample,
    zeros: u32,
    /// For each flow, the packets from its lower end and the packets from its higher end.
    seen: HashMap<FlowKey, [u64; 2]>,
    pub(super) packets: u64,
    /// Packets without a flow: packets that are neither IPv4 nor IPv6, fragments, or ICMP errors.
    pub(super) without_flow: u64,
    /// Packets that contain another packet that verify can't read.
    pub(super) unread: u64,
}

impl Flows {
    /// The flows of a member that has not got a packet yet.
    pub(super) fn new(sample: Sample) -> Self {
        Self {
            sample,
            ..Self::default()
        }
    }

    /// Adds a packet.
    pub(super) fn add(&mut self, frame: &[u8]) {
        self.packets += 1;
        let layers = layers(frame);
        self.unread += u64::from(layers.unread().is_some());
        let Some((key, is_from_low)) = flow_of(&layers) else {
            self.without_flow += 1;
            return;
        };
        self.follow_sample();
        if !is_in(&key, self.zeros) {
            return;
        }
        let seen = self.seen.entry(key).or_default();
        seen[usize::from(!is_from_low)] += 1;
        if self.seen.len() > KEPT {
            self.sample.0.fetch_max(self.zeros + 1, Ordering::Relaxed);
            self.follow_sample();
        }
    }

    /// Forgets flows that are no longer in the sample.
    fn follow_sample(&mut self) {
        let zeros = self.sample.zeros();
        if zeros != self.zeros {
            self.zeros = zeros;
            self.seen.retain(|key, _| is_in(key, zeros));
        }
    }
}

fn is_in(key: &FlowKey, zeros: u32) -> bool {
    // All members compute the same hash, because this hasher has no random key.
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish().trailing_zeros() >= zeros
}

/// The sampled flows, by whether one member or several members got them.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Number of flows.
    pub(super) flows: usize,
    /// How many of the flows have packets in both directions.
    pub(super) two_way: usize,
    /// A flow with packets in one direction only: the first by its key.
    pub(super) one_way: Option<FlowKey>,
    /// Flows with a direction whose packets went to several members.
    pub(super) split: Vec<FlowKey>,
    /// Flows whose two directions went to different members.
    pub(super) apart: Vec<FlowKey>,
    /// Packets of all flows, and of the largest flow.
    pub(super) packets: u64,
    pub(super) largest: u64,
}

impl Places {
    /// Compares the flows of all members.
    pub(super) fn of(mut members: Vec<Flows>) -> Self {
        members.iter_mut().for_each(Flows::follow_sample);
        let mut all: HashMap<FlowKey, Vec<[u64; 2]>> = HashMap::new();
        for member in members {
            for (key, packets) in member.seen {
                all.entry(key).or_default().push(packets);
            }
        }
        let mut places = Self::default();
        for (key, at) in all {
            places.add(key, &at);
        }
        places.split.sort_unstable();
        places.apart.sort_unstable();
        places
    }

    /// Adds a flow. For each member that got packets of the flow, `at` has their number in each
    /// direction.
    fn add(&mut self, key: FlowKey, at: &[[u64; 2]]) {
        let packets = at.iter().flatten().sum();
        self.flows += 1;
        self.packets += packets;
        self.largest = self.largest.max(packets);
        let members = |direction: usize| at.iter().filter(|it| it[direction] > 0).count();
        let (one, other) = (members(0), members(1));
        if one > 0 && other > 0 {
            self.two_way += 1;
        } else if self.one_way.is_none_or(|first| key < first) {
            self.one_way = Some(key);
        }
        if one > 1 || other > 1 {
            self.split.push(key);
        } else if at.len() > 1 {
            self.apart.push(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::shown;
    use fanpcap_testkit::frames;

    fn frame(source: u16, destination: u16, is_answer: bool) -> Vec<u8> {
        let ports = match is_answer {
            true => (destination, source),
            false => (source, destination),
        };
        let mut packet = frames::v4(17, 0, &frames::udp(ports.0, ports.1, b"payload"));
        if is_answer {
            // Swap the addresses.
            let addresses: Vec<u8> = packet[12..20].to_vec();
            packet[12..16].copy_from_slice(&addresses[4..]);
            packet[16..20].copy_from_slice(&addresses[..4]);
        }
        frames::ethernet(0x0800, &packet)
    }

    fn places(members: &[&[Vec<u8>]]) -> Places {
        let sample = Sample::default();
        let flows = members.iter().map(|packets| {
            let mut flows = Flows::new(sample.clone());
            packets.iter().for_each(|it| flows.add(it));
            flows
        });
        Places::of(flows.collect())
    }

    #[test]
    fn a_flow_at_one_member_is_whole() {
        let found = places(&[
            &[frame(1, 9, false), frame(1, 9, true), frame(1, 9, false)],
            &[frame(2, 9, false)],
        ]);
        assert_eq!((found.flows, found.two_way), (2, 1));
        let one_way = found.one_way.as_ref().map(shown).unwrap();
        assert_eq!(one_way, "udp 10.0.0.1:2 - 10.0.0.2:9");
        assert!(found.split.is_empty() && found.apart.is_empty());
        assert_eq!((found.packets, found.largest), (4, 3));
    }

    #[test]
    fn directions_apart_are_not_split_flows() {
        let found = places(&[&[frame(1, 9, false)], &[frame(1, 9, true)]]);
        assert_eq!(
            (found.two_way, found.split.len(), found.apart.len()),
            (1, 0, 1)
        );
        let found = places(&[
            &[frame(1, 9, false)],
            &[frame(1, 9, false)],
            &[frame(1, 9, true)],
        ]);
        assert_eq!((found.split.len(), found.apart.len()), (1, 0));
        assert!(
            shown(&found.split[0]).starts_with("udp "),
            "{}",
            shown(&found.split[0])
        );
    }

    #[test]
    fn fragments_and_other_protocols_have_no_flow() {
        let later = frames::ethernet(0x0800, &frames::v4(17, 5, b"the rest of it"));
        let mut flows = Flows::new(Sample::default());
        for packet in [&later[..], &frames::ethernet(0x0806, &[0; 46]), &[]] {
            flows.add(packet);
        }
        assert_eq!(
            (flows.packets, flows.without_flow, flows.seen.len()),
            (3, 3, 0)
        );
    }

    #[test]
    fn packets_that_carry_what_is_not_read_are_counted() {
        let mut flows = Flows::new(Sample::default());
        flows.add(&frame(1, 9, false));
        flows.add(&frames::ethernet(0x0800, &frames::v4(50, 0, &[7; 60])));
        flows.add(&frames::ethernet(0x894f, &[0; 60]));
        assert_eq!((flows.packets, flows.unread), (3, 2));
    }

    #[test]
    fn many_flows_are_sampled_alike_by_all_members() {
        let sample = Sample::default();
        let mut members = [Flows::new(sample.clone()), Flows::new(sample.clone())];
        for port in 1..=40_000 {
            // Each flow is split, and the second member has few flows.
            members[0].add(&frame(port, 50_000, false));
            if port % 2 == 0 {
                members[1].add(&frame(port, 50_000, false));
            }
        }
        assert!(members.iter().all(|it| it.seen.len() <= KEPT));
        assert!(sample.one_in() > 1);
        let found = Places::of(members.into());
        assert!(found.flows > 1000, "{}", found.flows);
        let split = found.split.len() * 100 / found.flows;
        assert!((40..60).contains(&split), "{split} % are split");
    }
}
