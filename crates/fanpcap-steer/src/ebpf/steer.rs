//! Emits steering functions, which put the hash or the member's number into r8, or drop the packet.

use super::emitter::{Emitter, Ends, Routine};
use super::inside::{GTP_C, GTP_U};
use super::maps::Map;
use super::stack::{KEY, OUTER, SCRATCH};
use super::view::{LATER, LINK, Origin, View};
use crate::hash::{M1, M2};
use crate::ir::{Field, Flow, Ports, Predicate, Property, Steer};
use fanpcap_bpf::assembler::*;
use fanpcap_bpf::kernel::*;

/// Offset of a frame's outermost tag, and its length.
const TAG_AT: u8 = 12;
const TAG_LEN: u16 = 4;

impl Emitter<'_> {
    /// Emits a steering function, which sets the outcome in r8 or jumps to `drop`.
    pub(super) fn steer(&mut self, steer: &Steer, drop: Label) {
        self.recall_view();
        match *steer {
            Steer::Flow(flow) => self.by_flow(Ends::Flow(flow), drop),
            Steer::Link => self.by_link(drop),
            Steer::Vlan => self.by_property(Property::VlanId, drop),
            Steer::RoundRobin => self.in_turn(drop),
            Steer::Random => {
                self.asm.call(GET_PRANDOM_U32, ());
                self.asm.alu(Op::And, R0, i32::MAX);
                self.asm.set(R8, R0);
            }
            Steer::Cpu => {
                self.asm.call(GET_SMP_PROCESSOR_ID, ());
                self.asm.set(R8, R0);
                self.is_number();
            }
            Steer::Rss => self.by_rss(),
            Steer::To(member) => self.by_member(member),
            Steer::Field(field) => {
                self.field(field, drop);
                self.end(R1);
                self.outcome(R1);
            }
            Steer::Fields(one, other) => self.by_fields(one, other, drop),
            Steer::LocalIp(net) => self.by_local(net, None, drop),
            Steer::LocalNet(net, bits) => self.by_local(net, Some(bits), drop),
            Steer::LocalLink(gateway) => self.by_local_link(gateway, drop),
            Steer::Key(key) => {
                self.key(key, 0, drop);
                self.asm.set(R8, R0);
            }
            Steer::Media => self.by_media(drop),
            Steer::Gtp => self.by_gtp(drop),
            Steer::DoubleLink | Steer::DoubleIp | Steer::DoubleField(..) if !self.delivers() => {
                self.unfit("a copy to a second member");
            }
            Steer::DoubleLink => self.double_link(drop),
            Steer::DoubleIp => self.double_ip(drop),
            Steer::DoubleField(one, other) => self.double_field(one, other, drop),
        }
    }

    /// Jumps to `no` unless the packet has an Ethernet header. Clobbers r2.
    pub(super) fn require_link(&mut self, no: Label) {
        if !self.view.is_plain() {
            self.require(LINK, no);
        }
    }

    /// Replaces the number in `value` by its hash, as the function `end` of `hash.rs` does. Sets r5
    /// to M1, clobbers r0.
    pub(super) fn end(&mut self, value: Register) {
        self.asm.number(R5, M1);
        self.mix(value);
        self.mix(value);
    }

    /// Computes `mix` of `hash.rs`. r5 must be M1. Clobbers r0.
    pub(super) fn mix(&mut self, value: Register) {
        self.asm.alu(Op::Mul, value, R5);
        self.asm.set(R0, value >> 32);
        self.asm.alu(Op::Xor, value, R0);
    }

    /// Computes `finish` of `hash.rs` into r0. Clobbers r5.
    pub(super) fn finish(&mut self, hash: Register) {
        self.asm.number(R5, M2);
        self.asm.set(R0, hash >> 29);
        self.asm.set(hash, ((hash ^ R0) * R5) >> 33);
        self.asm.set(R0, hash);
    }

    pub(super) fn outcome(&mut self, hash: Register) {
        self.finish(hash);
        self.asm.set(R8, R0);
    }

    fn by_property(&mut self, property: Property, drop: Label) {
        self.property(property, drop);
        self.end(R1);
        self.outcome(R1);
    }

    /// Steers by the addresses and ports that `ends` names. A fragment gets the outcome of its
    /// datagram. If fragments carry the packet, it gets the outcome of their datagram.
    fn by_flow(&mut self, ends: Ends, drop: Label) {
        self.by_ends(ends, drop);
        let by_ports = !matches!(ends, Ends::Flow(flow) if flow.ports == Ports::None);
        if !self.view.is_plain() && (by_ports || self.nested) {
            self.will_follow();
        }
    }

    fn by_ends(&mut self, ends: Ends, drop: Label) {
        match self.view {
            View::Plain { .. } => {
                if ends.by_vlan() {
                    self.keep_vlan();
                }
                self.hash(ends);
            }
            View::Packed => {
                self.require_ip(drop);
                self.call_hash(ends);
            }
            View::Kept => {
                self.require_ip(drop);
                self.hash_of_kept(ends);
            }
        }
        self.asm.set(R8, R0);
    }

    /// Puts the hash of the flow into r0. Computes it from the headers on the stack, unless the
    /// packet may be an ICMP error, which quotes another packet.
    fn hash_of_kept(&mut self, ends: Ends) {
        let [error, done] = self.asm.labels();
        if matches!(ends, Ends::Flow(_)) {
            self.protocol(R1);
            for icmp in [1, 58] {
                self.asm.jump_if(R1.is(icmp), error);
            }
        }
        if ends.by_vlan() {
            self.keep_vlan();
        }
        self.hash(ends);
        self.asm.jump(done);
        self.bind_and(error, |this| {
            this.recall(OUTER);
            this.call_hash(ends);
        });
        self.asm.bind(done);
    }

    /// Puts into r0 the hash of the packet whose view is in r7.
    fn call_hash(&mut self, ends: Ends) {
        self.asm.set(R2, R7);
        if matches!(ends, Ends::Flow(_)) {
            self.routine(Routine::Quoted, (R6, R2, 0));
            self.asm.set(R2, R0);
        }
        self.routine(Routine::Hash(ends), (R6, R2, R7));
    }

    fn by_rss(&mut self) {
        let [none, not_ip, done] = self.asm.labels();
        self.hash_beside(none);
        self.asm.alu(Op::And, R1, i32::MAX);
        self.asm.set(R8, R1);
        self.asm.jump(done);
        self.asm.bind(none);
        self.by_flow(Ends::Flow(Flow::WHOLE), not_ip);
        self.asm.jump(done);
        self.asm.bind(not_ip);
        self.asm.set(R8, 0);
        self.asm.bind(done);
    }

    /// Loads both Ethernet addresses into r1 and r2.
    pub(super) fn links(&mut self, drop: Label) {
        self.require_link(drop);
        let both = self.fetch(Origin::Link, 0, 12, drop);
        both.six(&mut self.asm, R1, R3);
        both.at(6).six(&mut self.asm, R2, R3);
    }

    fn by_link(&mut self, drop: Label) {
        self.links(drop);
        self.two_ends();
        self.outcome(R1);
    }

    /// Replaces the numbers in r1 and r2 by their hashes (`end` of `hash.rs`), and then puts the
    /// sum of both hashes into r1. Sets r5 to M1, clobbers r0.
    pub(super) fn two_ends(&mut self) {
        self.ends();
        self.asm.alu(Op::Add, R1, R2);
    }

    /// Replaces the numbers in r1 and r2 by their hashes (`end` of `hash.rs`). Sets r5 to M1,
    /// clobbers r0.
    pub(super) fn ends(&mut self) {
        self.end(R1);
        self.end(R2);
    }

    /// Loads the address of this CPU's [`Map::Turns`] into r0.
    fn turns(&mut self, drop: Label) {
        let turns = self.maps.of(Map::Turns);
        self.asm.store(Width::Double, R10, KEY, 0);
        self.asm.call(MAP_LOOKUP, (map(turns), stack(KEY)));
        self.asm.jump_if(R0.is(0), drop);
    }

    fn in_turn(&mut self, drop: Label) {
        self.turns(drop);
        self.asm.load(Width::Word, R8, R0, 0);
        self.asm.set(R1, (R8 + 1) & i32::MAX);
        self.asm.store(Width::Word, R0, 0, R1);
        self.is_number();
    }

    /// Passes `keep` of every `of` packets. The sampler's counter runs from 0 to `of` - 1.
    pub(super) fn sample(&mut self, keep: u32, of: u32, index: u8, drop: Label) {
        let at = 4 * (1 + i16::from(index));
        self.turns(drop);
        self.asm.load(Width::Word, R1, R0, at);
        self.asm.set(R2, R1 + 1);
        self.asm.number(R3, u64::from(of));
        self.asm.when(R2.at_least(R3), |asm| asm.set(R2, 0));
        self.asm.store(Width::Word, R0, at, R2);
        self.asm.number(R3, u64::from(keep));
        self.asm.jump_if(R1.at_least(R3), drop);
    }

    /// Loads bytes of the frame as a number into r1. Keeps r9. Offsets do not count the outermost
    /// tag.
    fn field(&mut self, field: Field, drop: Label) {
        let to = SCRATCH;
        let (offset, len) = (field.offset, field.len);
        let [bytes, untagged, loaded] = self.asm.labels();
        let before_tag = u8::try_from(offset).map_or(0, |at| TAG_AT.saturating_sub(at).min(len));
        if before_tag < len && !self.view.is_plain() {
            self.tag_beside(bytes);
            self.asm.jump(untagged);
            self.asm.bind(bytes);
            // The code skips a tag only if the frame also has the type behind the tag: the kernel
            // removes only such a tag from a frame.
            let kind = self.first_four(Origin::Frame, TAG_AT, 6, untagged);
            kind.half(&mut self.asm, R1);
            self.asm.unless(R1.is(0x8100), |asm| {
                asm.jump_if(R1.is_not(0x88a8), untagged)
            });
            if before_tag > 0 {
                self.load(Origin::Frame, offset, before_tag, to, drop);
            }
            let (rest, at) = (len - before_tag, offset + u16::from(before_tag));
            let behind = to + i16::from(before_tag);
            let at = at.saturating_add(TAG_LEN);
            self.load(Origin::Frame, at, rest, behind, drop);
            self.asm.jump(loaded);
        }
        self.asm.bind(untagged);
        self.load(Origin::Frame, offset, len, to, drop);
        self.asm.bind(loaded);
        self.asm.set(R1, 0);
        for at in 0..i16::from(field.len) {
            self.asm.load(Width::Byte, R2, R10, to + at);
            self.asm.set(R1, (R1 << 8) | R2);
        }
    }

    /// Loads two fields into r1 and r2.
    pub(super) fn fields(&mut self, one: Field, other: Field, drop: Label) {
        self.field(other, drop);
        self.asm.set(R9, R1);
        self.field(one, drop);
        self.asm.set(R2, R9);
    }

    fn by_fields(&mut self, one: Field, other: Field, drop: Label) {
        self.fields(one, other, drop);
        self.two_ends();
        self.outcome(R1);
    }

    /// Falls through for RTP, for RTCP, and for later fragments of UDP, which may belong to RTP or
    /// RTCP. Jumps to `drop` for other packets.
    fn media(&mut self, drop: Label) {
        let [not_rtp, whole, yes] = self.asm.labels();
        if !self.view.is_plain() {
            self.require(LATER, whole);
            self.require_protocol(&[17], drop);
            self.asm.jump(yes);
        }
        self.asm.bind(whole);
        self.branch(&Predicate::Rtp, yes, not_rtp);
        self.asm.bind(not_rtp);
        self.branch(&Predicate::Rtcp, yes, drop);
        self.asm.bind(yes);
    }

    fn by_media(&mut self, drop: Label) {
        self.media(drop);
        self.by_flow(Ends::Media, drop);
    }

    /// Jumps to `carried` for a user packet in a GTP tunnel, with the packet's view in r1. Jumps to
    /// `outer` for the control protocol of GTP.
    fn gtp(&mut self, carried: Label, outer: Label, drop: Label) {
        let control = self.asm.label();
        let ports = self.udp_header(drop);
        ports.half(&mut self.asm, R3);
        ports.at(2).half(&mut self.asm, R4);
        if !self.view.is_plain() && !self.nested {
            self.asm.unless(R3.is(i32::from(GTP_U)), |asm| {
                asm.jump_if(R4.is_not(i32::from(GTP_U)), control);
            });
            self.recall_carried();
            self.asm.jump_if(R1.is_not(0), carried);
        }
        self.asm.bind(control);
        self.asm.jump_if(R3.is(i32::from(GTP_C)), outer);
        self.asm.branch(R4.is(i32::from(GTP_C)), outer, drop);
    }

    fn by_gtp(&mut self, drop: Label) {
        let [carried, outer, done] = self.asm.labels();
        let addresses = Ends::Flow(Flow::ADDRESSES);
        self.gtp(carried, outer, drop);
        self.asm.bind(carried);
        if !self.view.is_plain() && !self.nested {
            self.asm.set(R7, R1);
            self.call_hash(addresses);
            self.asm.set(R8, R0);
            self.asm.jump(done);
        }
        self.asm.bind(outer);
        self.by_ends(addresses, drop);
        self.asm.bind(done);
    }
}
