//! A node's selection in user space. It does the same as the BPF program, packet by packet.

use fanpcap_steer::ir::Filter;
use fanpcap_steer::native::Packet;
use fanpcap_wire::Frame;

use crate::in_line::{Announced, InLine, Kind, decode};
use crate::{Claim, Claims, Control, Keys, Selection};

/// What becomes of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The node has no table yet. The frame passes and is not counted.
    Idle,
    /// The frame came from the coordinator, and no node captures it.
    InLine(Kind),
    /// A packet of this bucket. The node has this claim to the bucket.
    Packet {
        /// The bucket.
        bucket: usize,
        /// The claim. With [`Claim::Elsewhere`] the node drops the packet.
        claim: Claim,
    },
    /// A packet of this bucket, which belongs to this node. The cluster's filter drops the packet.
    Filtered {
        /// The bucket.
        bucket: usize,
    },
}

/// A node's counters that are not kept by bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Causes {
    /// Genuine beacons, which carry a number that [`Node::announce`] announced before.
    pub beacons: u64,
    /// Genuine topology updates, which carry a number that [`Node::announce`] announced before.
    pub updates: u64,
    /// Beacons and updates with a wrong or an already used number. They also count as packets.
    pub forged: u64,
    /// Packets without the fields that the selection key needs ([`crate::Number::is_other`]).
    pub others: u64,
    /// Packets of this node that were lost because a ring was full.
    pub lost: u64,
    /// Packets of buckets that a union gives to this node and to another node.
    pub shared: u64,
    /// Packets of this node that did not pass the cluster's filter.
    pub filtered: u64,
}

/// A node's selection.
#[derive(Clone, Debug)]
pub struct Node {
    cluster: u32,
    keys: Keys,
    filter: Option<Filter>,
    tables: [Claims; 2],
    control: Control,
    /// The control word that takes effect at the next topology update in the mirrored stream.
    next: Option<Control>,
    announced: Announced,
    last_beacon: Option<InLine>,
    /// Whether other devices may bring copies of beacons.
    is_several: bool,
    causes: Causes,
}

impl Node {
    /// A node that has no table.
    pub fn new(cluster: u32, selection: Selection) -> Self {
        Self {
            cluster,
            keys: Keys::new(selection),
            filter: None,
            tables: [Claims::none(), Claims::none()],
            control: Control::default(),
            next: None,
            announced: Announced::default(),
            last_beacon: None,
            is_several: false,
            causes: Causes::default(),
        }
    }

    /// From now on, drops packets that do not pass this filter.
    pub fn filter(&mut self, filter: Option<Filter>) {
        self.filter = filter;
    }

    /// From now on, a copy of the last beacon that another device brings does not count as forged.
    pub fn several_devices(&mut self) {
        self.is_several = true;
    }

    /// Uses these claims from now on, and drops the claims that [`Self::prepare`] took, if any.
    pub fn switch(&mut self, claims: Claims, mark: u32) {
        self.control = self.prepared(claims, mark);
        self.next = None;
    }

    /// Uses these claims from the next topology update in the mirrored stream on.
    pub fn prepare(&mut self, claims: Claims, mark: u32) {
        self.next = Some(self.prepared(claims, mark));
    }

    fn prepared(&mut self, claims: Claims, mark: u32) -> Control {
        let idle = self.control.idle();
        self.tables[idle] = claims;
        Control::new(idle, mark)
    }

    /// Announces the number of a frame.
    pub fn announce(&mut self, kind: Kind, sequence: u64, number: u64) {
        self.announced.announce(kind, sequence, number);
    }

    /// Returns what becomes of the next frame. `now_ns` is the time by any monotonic clock.
    pub fn judge(&mut self, frame: &Frame<'_>, now_ns: u64) -> Verdict {
        let claims_to_be = decode(frame.bytes, self.cluster);
        if let Some((kind, content)) = claims_to_be {
            if self.announced.take(kind, &content) {
                return self.in_line(content);
            }
            if self.is_copy(kind, &content) {
                return Verdict::InLine(Kind::Beacon);
            }
            self.causes.forged += 1;
        }
        let Some(generation) = self.control.generation() else {
            return Verdict::Idle;
        };
        let number = match claims_to_be {
            Some(_) => self.keys.of_forged(frame, now_ns),
            None => self.keys.number(frame, now_ns),
        };
        self.causes.others += u64::from(number.is_other);
        let (bucket, claim) = (number.bucket, self.tables[generation].of(number.bucket));
        self.causes.shared += u64::from(claim == Claim::Shared);
        let accepts = |filter: &Filter| filter.accepts(&Packet::of(*frame));
        if claim != Claim::Elsewhere && !self.filter.as_ref().is_none_or(accepts) {
            self.causes.filtered += 1;
            return Verdict::Filtered { bucket };
        }
        Verdict::Packet { bucket, claim }
    }

    fn is_copy(&self, kind: Option<Kind>, content: &InLine) -> bool {
        let last = self.last_beacon.as_ref().filter(|_| self.is_several);
        kind == Some(Kind::Beacon) && last.is_some_and(|last| last.number == content.number)
    }

    fn in_line(&mut self, content: InLine) -> Verdict {
        match content.kind {
            Kind::Beacon => {
                self.causes.beacons += 1;
                self.last_beacon = Some(content);
            }
            Kind::Update => {
                self.causes.updates += 1;
                self.keys.restart();
                self.control = self.next.take().unwrap_or(self.control);
            }
        }
        Verdict::InLine(content.kind)
    }

    /// The control word.
    pub fn control(&self) -> Control {
        self.control
    }

    /// The last beacon; `None` before the first one.
    pub fn last_beacon(&self) -> Option<&InLine> {
        self.last_beacon.as_ref()
    }

    /// The counters that are not kept by bucket.
    pub fn causes(&self) -> Causes {
        self.causes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    fn in_turn(mine: usize) -> Claims {
        Claims::new(|bucket| {
            if bucket % 2 == mine {
                Claim::Mine
            } else {
                Claim::Elsewhere
            }
        })
    }

    fn node() -> Node {
        Node::new(
            3,
            Selection {
                key: Key::RoundRobin,
                initial: 0,
            },
        )
    }

    fn packet(node: &mut Node) -> Verdict {
        node.judge(&Frame::default(), 0)
    }

    #[test]
    fn without_a_table_packets_pass() {
        let mut node = node();
        assert_eq!(packet(&mut node), Verdict::Idle);
        node.switch(in_turn(1), 7);
        let first = Verdict::Packet {
            bucket: 1,
            claim: Claim::Mine,
        };
        assert_eq!(packet(&mut node), first);
        assert_eq!(node.control().mark(), 7);
    }

    #[test]
    fn an_update_in_the_stream_switches_and_begins_the_turns() {
        let mut node = node();
        node.switch(in_turn(1), 1);
        packet(&mut node);
        node.prepare(in_turn(0), 2);
        node.announce(Kind::Update, 0, 99);
        let update = |number| InLine {
            kind: Kind::Update,
            cluster: 3,
            sequence: 0,
            time_ns: 0,
            number,
        };
        let judge = |node: &mut Node, number| {
            let bytes = update(number).encode([0; 6], [0; 6]);
            let frame = Frame {
                bytes: &bytes,
                tag: None,
            };
            node.judge(&frame, 0)
        };
        // A forged update is judged as an ordinary packet. Round robin does not count it, so the
        // next packet gets bucket 2.
        assert!(matches!(judge(&mut node, 98), Verdict::Packet { .. }));
        let second = Verdict::Packet {
            bucket: 2,
            claim: Claim::Elsewhere,
        };
        assert_eq!(packet(&mut node), second);
        assert_eq!(judge(&mut node, 99), Verdict::InLine(Kind::Update));
        assert_eq!(node.control().mark(), 2);
        let (first, replayed) = (packet(&mut node), judge(&mut node, 99));
        let next = packet(&mut node);
        assert!(matches!(replayed, Verdict::Packet { .. }));
        assert!(matches!(
            first,
            Verdict::Packet {
                bucket: 1,
                claim: Claim::Elsewhere
            }
        ));
        assert!(matches!(
            next,
            Verdict::Packet {
                bucket: 2,
                claim: Claim::Mine
            }
        ));
        assert_eq!((node.causes().forged, node.causes().updates), (2, 1));
    }
}
