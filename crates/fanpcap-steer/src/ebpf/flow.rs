//! The hash of a packet's flow, and the table by which a fragment gets the outcome of its datagram.

use super::emitter::{Emitter, Ends, Routine};
use super::maps::Map;
use super::stack::{CARRIED, OUTER, VLAN};
use super::view::{Bytes, FRAGMENT, IPV6, LATER, Origin, View};
use crate::hash::M1;
use crate::ir::{FRAGMENT_AGE_NS, Flow, Ports, Property};
use fanpcap_bpf::assembler::*;
use fanpcap_bpf::kernel::*;

impl Emitter<'_> {
    /// Emits [`super::emitter::Routine::Hash`].
    pub(super) fn hash_routine(&mut self, ends: Ends) {
        if ends.by_vlan() {
            self.asm.set(R9, R2);
            self.asm.set(R7, R3);
            self.keep_vlan();
            self.asm.set(R7, R9);
        } else {
            self.asm.set(R7, R2);
        }
        self.hash(ends);
        self.asm.exit();
    }

    /// Puts the hash of an IP packet into r0.
    pub(super) fn hash(&mut self, ends: Ends) {
        let none = self.asm.label();
        self.ports_of(ends);
        self.ends_of_addresses(none);
        self.asm.alu(Op::Add, R1, R2);
        if matches!(ends, Ends::Flow(Flow { protocol: true, .. })) {
            self.protocol(R2);
            self.asm.alu(Op::Xor, R1, R2);
            self.mix(R1);
        }
        if ends.by_vlan() {
            self.asm.load(Width::Double, R2, R10, VLAN);
            self.asm.alu(Op::Xor, R1, R2);
            self.mix(R1);
        }
        self.finish(R1);
        // Never reached, because the walk has checked that the frame has the addresses.
        self.asm.bind(none);
    }

    /// Stores the VLAN id of the outermost tag, or 0 without a tag, on the stack.
    pub(super) fn keep_vlan(&mut self) {
        self.vlan_or_none();
        self.asm.store(Width::Double, R10, VLAN, R1);
    }

    /// Loads the VLAN id of the outermost tag, or 0 without a tag, into r1.
    fn vlan_or_none(&mut self) {
        let [untagged, done] = self.asm.labels();
        self.property(Property::VlanId, untagged);
        self.asm.jump(done);
        self.asm.bind(untagged);
        self.asm.set(R1, 0);
        self.asm.bind(done);
    }

    /// Loads both ports, or 0 if there are no ports, into r9.
    fn ports_of(&mut self, ends: Ends) {
        let done = self.asm.label();
        self.asm.set(R9, 0);
        match ends {
            Ends::Flow(Flow {
                ports: Ports::None, ..
            }) => return,
            Ends::Flow(Flow {
                ports: Ports::Tcp, ..
            }) => self.require_protocol(&[6], done),
            Ends::Flow(_) | Ends::Media => {}
        }
        let ports = self.ports(done);
        ports.word(&mut self.asm, R9);
        if ends == Ends::Media {
            // Halves each port number, so that RTP and RTCP, which have adjacent ports, get the
            // same hash.
            self.asm.set(R9, (R9 >> 1) & 0x7fff_7fff);
        }
        self.asm.bind(done);
    }

    /// Mixes each address of an IP packet with its port into one number (an end, see `hash.rs`):
    /// the source's into r1, the destination's into r2. The caller has put the ports, or 0, into
    /// r9.
    pub(super) fn ends_of_addresses(&mut self, none: Label) {
        self.by_version(
            |this| {
                let addresses = this.fetch(Origin::Network, 12, 8, none);
                this.ends4(addresses);
            },
            |this| {
                let addresses = this.fetch(Origin::Network, 8, 32, none);
                this.ends6(addresses);
            },
        );
    }

    /// [`Self::ends_of_addresses`] for IPv4. Sets r5 to M1.
    fn ends4(&mut self, addresses: Bytes) {
        addresses.word(&mut self.asm, R1);
        addresses.at(4).word(&mut self.asm, R2);
        self.asm.alu(Op::Left, R1, 16);
        self.asm.alu(Op::Left, R2, 16);
        self.asm.set(R3, R9 >> 16);
        self.asm.alu(Op::Or, R1, R3);
        self.asm.alu(Op::And, R9, 0xffff);
        self.asm.alu(Op::Or, R2, R9);
        self.ends();
    }

    fn ends6(&mut self, addresses: Bytes) {
        self.asm.set(R3, R9 >> 16);
        self.asm.alu(Op::And, R9, 0xffff);
        self.asm.number(R5, M1);
        for (hash, at, port) in [(R1, 0, R3), (R2, 16, R9)] {
            addresses.at(at + 8).double(&mut self.asm, hash);
            self.mix(hash);
            addresses.at(at).double(&mut self.asm, R4);
            self.asm.alu(Op::Xor, hash, R4);
            self.mix(hash);
            self.asm.alu(Op::Xor, hash, port);
            self.mix(hash);
        }
    }

    /// Marks the outcome in r8, so that a fragment takes its datagram's outcome. A later decision
    /// or a drop removes the mark.
    pub(super) fn will_follow(&mut self) {
        self.follows = true;
        let mark = if self.nested { FOLLOWS_INSIDE } else { FOLLOWS };
        self.asm.number(R1, u64::from(mark) << 32);
        self.asm.alu(Op::Or, R8, R1);
    }

    /// Runs at the end of the BPF program. If r8 has a mark of [`Self::will_follow`], replaces the
    /// outcome in r8 by the outcome of the fragment's datagram. The fragments of a tunnel packet
    /// are one datagram, too: only the first fragment contains the headers of the carried packet,
    /// and the other fragments get the same outcome.
    pub(super) fn follow(&mut self) {
        if self.view.is_plain() || !self.follows {
            return;
        }
        let [outer, done] = self.asm.labels();
        self.asm.note("fragments");
        let view = std::mem::replace(&mut self.view, View::Packed);
        self.asm.set(R2, R8 >> 32);
        if self.delivers() {
            self.asm
                .alu(Op::And, R2, i32::from(FOLLOWS | FOLLOWS_INSIDE));
        }
        self.asm.jump_if(R2.is(0), done);
        if self.asks_inside {
            self.asm.jump_if(R2.is(i32::from(FOLLOWS)), outer);
            self.recall(CARRIED);
            self.asm.jump_if(R7.is(0), outer);
            self.follow_datagram();
        }
        self.asm.bind(outer);
        self.recall(OUTER);
        self.follow_datagram();
        self.asm.bind(done);
        self.view = view;
    }

    /// If the packet is a fragment, replaces the hash in r8 by the hash of its datagram.
    fn follow_datagram(&mut self) {
        let whole = self.asm.label();
        self.require(FRAGMENT, whole);
        self.routine(Routine::Fragments, (R6, R7, R8));
        self.asm.set(R8, R0);
        self.asm.bind(whole);
    }

    /// Emits [`super::emitter::Routine::Fragments`].
    pub(super) fn fragments_routine(&mut self) {
        let [unknown, done] = self.asm.labels();
        self.asm.set(R7, R2);
        self.asm.set(R8, R3);
        self.vlan_or_none();
        self.asm.set(R9, R1);
        // Never reached, because the walk has checked that the packet has all fields of the key.
        self.fragment_key(done);
        self.asm.call(KTIME_GET_NS, ());
        self.asm.set(R9, R0);
        self.fragment_map();
        self.asm.call(MAP_LOOKUP, ());
        self.asm.jump_if(R0.is(0), unknown);
        self.asm.load(Width::Double, R1, R0, TIME);
        // Another CPU may have written the entry after this CPU read the clock. So the code adds to
        // the entry's time, and does not subtract it from this CPU's time: the difference could be
        // negative.
        self.asm.number(R2, FRAGMENT_AGE_NS);
        self.asm.alu(Op::Add, R1, R2);
        self.asm.jump_if(R9.above(R1), unknown);
        self.asm.unless(R7.has_any(LATER), |asm| {
            // The first fragment takes the hash of later fragments that arrived before it. It does
            // so only once: a second first fragment belongs to another datagram with the same key.
            asm.load(Width::Word, R1, R0, EARLY);
            asm.jump_if(R1.is(0), unknown);
            asm.set(R1, 0);
            asm.store(Width::Word, R0, EARLY, R1);
        });
        self.asm.load(Width::Word, R0, R0, HASH);
        self.asm.exit();
        self.asm.bind(unknown);
        self.remember();
        self.require(LATER, done);
        let late = self.maps.of(Map::Late);
        self.asm.value(R1, late, 0);
        self.asm.set(R2, 1);
        self.asm.atomic_add(R1, 0, R2);
        self.asm.bind(done);
        self.asm.exit_with(R8);
    }

    /// Writes the key to the stack: addresses, identification, and one number, which has the VLAN
    /// id in r9 and the protocol (in IPv4) or the version (in IPv6).
    fn fragment_key(&mut self, missing: Label) {
        let [six, done] = self.asm.labels();
        self.asm.jump_if(R7.has_any(IPV6), six);
        for at in [0, 8, 16, 24, 32] {
            self.asm.store(Width::Double, R10, KEY + at, 0);
        }
        let addresses = self.fetch(Origin::Network, 4, 16, missing);
        for (from, to) in [(8, 0), (12, 16)] {
            addresses.at(from).word(&mut self.asm, R1);
            self.asm.store(Width::Word, R10, KEY + to, R1);
        }
        addresses.half(&mut self.asm, R1);
        self.asm.store(Width::Word, R10, KEY + 32, R1);
        self.asm.set(R1, R7 & super::view::PROTOCOL_MASK);
        self.asm.jump(done);
        self.asm.bind(six);
        self.load(Origin::Network, 8, 32, KEY, missing);
        self.read(R1, Width::Word, Origin::Fragment, 4, missing);
        self.asm.store(Width::Word, R10, KEY + 32, R1);
        // The upper protocol is not in the key, because only the first fragment may contain it (RFC
        // 8200 section 4.5).
        self.asm.set(R1, IPV6);
        self.asm.bind(done);
        self.asm.alu(Op::Left, R9, 16);
        self.asm.alu(Op::Or, R1, R9);
        self.asm.store(Width::Word, R10, KEY + 36, R1);
    }

    /// Loads the map and the key as a helper's arguments.
    fn fragment_map(&mut self) {
        let map = self.maps.of(Map::Fragments);
        self.asm.map(R1, map);
        self.asm.set(R2, stack(KEY));
    }

    /// Stores the hash in r8 as the hash of this fragment's datagram.
    fn remember(&mut self) {
        self.asm.set(R1, R7 & LATER);
        // The order of these stores matters, because the verifier counts the stored hash as a
        // spilled register (`stack.rs`).
        self.asm.store(Width::Word, R10, VALUE + EARLY, R1);
        self.asm.store(Width::Word, R10, VALUE, R8);
        self.asm.store(Width::Double, R10, VALUE + TIME, R9);
        self.fragment_map();
        self.asm.call(MAP_UPDATE, (R1, R2, stack(VALUE), 0));
    }
}

impl Ends {
    pub(super) fn by_vlan(self) -> bool {
        matches!(self, Self::Flow(Flow { vlan: true, .. }))
    }
}

/// Marks in the upper half of r8: a fragment must take the outcome of its datagram. The datagram
/// was steered by its own flow ([`FOLLOWS`]) or by the carried packet's flow ([`FOLLOWS_INSIDE`]).
const FOLLOWS: u8 = 1;
const FOLLOWS_INSIDE: u8 = 2;

/// Stack of the BPF function for fragments: a key and a value of [`Map::Fragments`].
const KEY: i16 = -40;
const VALUE: i16 = -56;

/// Offsets in a value of [`Map::Fragments`].
const HASH: i16 = 0;
const EARLY: i16 = 4;
const TIME: i16 = 8;
