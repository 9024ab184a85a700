//! Conversations: the frames of many flows, interleaved on the wire.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::RngCore;

use crate::frame::{Frame, Packet};
use crate::talk::{Talk, Way, Wrap, seen};

/// Number of flows whose packets are interleaved on the wire, in most tests.
pub(crate) const AT_ONCE: usize = 64;

/// A frame, and the flow and datagram that it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) frame: Frame,
    pub(crate) kind: &'static str,
    pub(crate) flow: usize,
    /// The frame is an ICMP error about the flow.
    pub(crate) error: bool,
    pub(crate) datagram: Option<usize>,
    /// A later fragment of the datagram is sent before the first fragment.
    pub(crate) late: bool,
}

/// Makes the frames of one flow.
pub(crate) struct Speaker<'a> {
    pub(crate) random: &'a mut Pcg64Mcg,
    pub(crate) parts: Vec<Part>,
    kind: &'static str,
    wrap: Wrap,
    flow: usize,
}

impl<'a> Speaker<'a> {
    pub(crate) fn new(
        random: &'a mut Pcg64Mcg,
        kind: &'static str,
        wrap: Wrap,
        flow: usize,
    ) -> Self {
        let parts = Vec::new();
        Self {
            random,
            parts,
            kind,
            wrap,
            flow,
        }
    }

    /// The properties of the next packet on the wire.
    pub(crate) fn way(&mut self, reply: bool) -> Way {
        Way {
            reply,
            vlan: u16::try_from(self.flow % 4000 + 1).unwrap_or(1),
            outer_ipv4: self.flow / 2 % 2 == 0,
            entropy: u16::try_from(self.random.next_u32() % 0x4000).unwrap_or(0),
        }
    }

    /// Sends a packet.
    pub(crate) fn say(&mut self, packet: &Packet, reply: bool) {
        let way = self.way(reply);
        self.put((self.wrap)(packet, way), reply);
    }

    /// Sends the ICMP error about a request.
    pub(crate) fn complain(&mut self, talk: &Talk) {
        self.say(&talk.refusal(), true);
        self.parts
            .iter_mut()
            .last()
            .expect("what was just said")
            .error = true;
    }

    /// Sends the packets of `say` as the fragments of one datagram.
    pub(crate) fn in_fragments(
        &mut self,
        datagram: usize,
        late: bool,
        say: impl FnOnce(&mut Self),
    ) {
        let begin = self.parts.len();
        say(self);
        let fragments = &mut self.parts[begin..];
        if late {
            fragments.rotate_left(1);
        } else if self.random.next_u32() % 2 == 0 {
            fragments[1..].reverse();
        }
        for part in fragments {
            (part.datagram, part.late) = (Some(datagram), late);
        }
    }

    /// Sends a frame. In half of the flows all frames arrive, as at a tap. In the other half
    /// requests arrive and replies leave, as at the flow's server.
    pub(crate) fn put(&mut self, bytes: Vec<u8>, reply: bool) {
        let leaves = reply && self.flow / 4 % 2 == 0;
        self.parts.push(Part {
            frame: seen(bytes, leaves),
            kind: self.kind,
            flow: self.flow,
            error: false,
            datagram: None,
            late: false,
        });
    }
}

/// A payload of length `len` that no other packet has.
pub(crate) fn data(flow: usize, packet: usize, len: usize) -> Vec<u8> {
    let mut data = [flow.to_be_bytes(), packet.to_be_bytes()].concat();
    data.resize(len, 0x5a);
    data
}

/// Interleaves `at_once` flows at a time. The frames of each flow stay in order.
pub(crate) fn interleaved(seed: u64, at_once: usize, conversations: Vec<Vec<Part>>) -> Vec<Part> {
    let mut random = Pcg64Mcg::new(seed.into());
    let mut waiting = conversations.into_iter().map(Vec::into_iter);
    let mut open: Vec<_> = waiting.by_ref().take(at_once).collect();
    let mut parts = Vec::new();
    while !open.is_empty() {
        let chosen = usize::try_from(random.next_u32()).unwrap_or(0) % open.len();
        match open[chosen].next() {
            Some(part) => parts.push(part),
            None => {
                open.swap_remove(chosen);
                open.extend(waiting.next());
            }
        }
    }
    parts
}
