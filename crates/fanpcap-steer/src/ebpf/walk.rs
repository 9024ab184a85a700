//! The walk from the Ethernet header to the transport header, as in `fanpcap_wire`.
//!
//! The code builds the view in r7. r8 has the offset of the next header, and r9 has the type or
//! protocol of that header. All stages of the walk end at one label.

use super::emitter::{Emitter, Routine};
use super::needs::Needs;
use super::stack::{CARRIED, OUTER, WALKED, WALKED_SCRATCH};
use super::view::{
    BACK_SHIFT, Bytes, CHECKED, FRAGMENT, FRAGMENT_SHIFT, INNER, IPV4, IPV6, LATE_START, LATER,
    LINK, LINK_LEN, NETWORK_SHIFT, Origin, TAG, TRANSPORT_SHIFT, UNTYPED,
};
use fanpcap_bpf::assembler::*;
use fanpcap_wire::{EXTENSIONS_MAX, LABELS_MAX, NSH_MAX, TAGS_BEHIND_MAX, TAGS_MAX};

/// The stages at which a walk can begin. A walk begins with an offset in r8, and with the known
/// parts of the view in r7.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stages {
    pub(super) ethernet: Label,
    pub(super) mpls: Label,
    pub(super) nsh: Label,
    /// The walk begins at a packet or frame that no type announces.
    pub(super) untyped: Label,
    pub(super) ipv4: Label,
    pub(super) ipv6: Label,
}

impl Stages {
    /// The stages in the order of their numbers.
    fn all(self) -> [Label; 6] {
        [
            self.ethernet,
            self.mpls,
            self.nsh,
            self.untyped,
            self.ipv4,
            self.ipv6,
        ]
    }
}

/// Shift of a stage's number in r3, the argument of [`Routine::Walk`]. The bits below have the
/// offset.
const STAGE_SHIFT: i32 = 16;

impl Emitter<'_> {
    /// Walks the frame and puts its view into r7. If the tree reads the carried packet, stores that
    /// packet's view on the stack.
    pub(super) fn walk(&mut self, needs: &Needs) {
        self.asm.note("walk: the packet");
        let stages = self.stages();
        self.begin_view();
        self.asm.set(R8, 0);
        self.asm.jump(stages.ethernet);
        self.walk_from(stages);
        self.untyped_of_frame();
        if needs.headers {
            self.keep_headers();
        }
        self.forget(OUTER);
        if self.asks_inside {
            self.asm.note("walk: what it carries");
            self.carried();
        }
    }

    fn carried(&mut self) {
        let (stages, none, done) = (self.stages(), self.asm.label(), self.asm.label());
        self.when(R8.is(0), |this| {
            this.inside(stages, none);
            this.walk_from(stages);
            this.untyped();
            this.asm.set(R8, R7);
        });
        self.asm.set(R7, R8);
        self.forget(CARRIED);
        self.asm.jump_if(R7.has_any(IPV4 | IPV6), done);
        self.asm.bind(none);
        self.asm.set(R7, 0);
        self.forget(CARRIED);
        self.asm.bind(done);
    }

    /// Binds the labels of the stages, and calls the walk routine for the stage to whose label the
    /// code has jumped. Puts the view into r7. Clobbers r0 to r5.
    pub(super) fn walk_from(&mut self, stages: Stages) {
        let call = self.asm.label();
        for (number, stage) in (0..).zip(stages.all()) {
            self.asm.bind(stage);
            self.asm.set(R3, number << STAGE_SHIFT);
            self.asm.jump(call);
        }
        self.asm.bind(call);
        self.asm.set(R1, R6);
        self.asm.set(R2, R7);
        self.asm.alu(Op::Or, R3, R8);
        self.routine(Routine::Walk, ());
        self.asm.set(R7, R0);
        self.erase(&[R7]);
    }

    /// Emits [`Routine::Walk`].
    pub(super) fn walk_routine(&mut self) {
        let (stages, end) = (self.stages(), self.asm.label());
        let scratch = std::mem::replace(&mut self.scratch, WALKED_SCRATCH);
        self.asm.set(R7, R2);
        self.asm.set(R8, R3 & ((1 << STAGE_SHIFT) - 1));
        self.asm.alu(Op::Right, R3, STAGE_SHIFT);
        for (number, stage) in (0..).zip(stages.all()).skip(1) {
            self.asm.jump_if(R3.is(number), stage);
        }
        self.link(stages, end);
        self.network(stages, end);
        self.asm.bind(end);
        // If a header is cut off, the walk ends with `CHECKED` set. Clears the bit, because after
        // the walk it means `WITH_PORTS`.
        self.asm.alu(Op::And, R7, !CHECKED);
        self.asm.exit_with(R7);
        self.scratch = scratch;
    }

    pub(super) fn stages(&mut self) -> Stages {
        Stages {
            ethernet: self.asm.label(),
            mpls: self.asm.label(),
            nsh: self.asm.label(),
            untyped: self.asm.label(),
            ipv4: self.asm.label(),
            ipv6: self.asm.label(),
        }
    }

    /// Makes the `len` bytes at r8 + `offset` readable, or jumps to `missing`.
    pub(super) fn here(&mut self, offset: u8, len: u8, missing: Label) -> Bytes {
        self.fetch(Origin::Current, offset, len, missing)
    }

    /// Walks Ethernet, VLAN tags, PPPoE, MPLS and NSH.
    fn link(&mut self, stages: Stages, end: Label) {
        let [typed, cut, pppoe] = self.asm.labels();
        self.asm.bind(stages.ethernet);
        self.asm.set(R1, (R8 + LINK_LEN) << NETWORK_SHIFT);
        self.asm.alu(Op::Or, R7, R1);
        self.read(R9, Width::Half, Origin::Current, 12, end);
        self.asm.alu(Op::Or, R7, LINK);
        self.asm.alu(Op::Add, R8, LINK_LEN);
        for number in 1..=TAGS_MAX {
            self.tag(number == TAGS_MAX, typed, cut, end);
        }
        self.asm.jump(typed);
        self.asm.bind(cut);
        self.asm.alu(Op::Or, R7, UNTYPED);
        self.asm.jump(end);
        self.asm.bind(typed);
        self.erase(&[R7, R8]);
        self.by_type(stages, pppoe);
        self.makers_tag(end);
        self.erase(&[R7, R8]);
        self.by_type(stages, pppoe);
        self.asm.jump(end);
        self.asm.bind(pppoe);
        self.pppoe(stages, end);
        self.mpls(stages, end);
        self.nsh(stages, end);
    }

    fn by_type(&mut self, stages: Stages, pppoe: Label) {
        for (kind, stage) in [
            (0x0800, stages.ipv4),
            (0x86dd, stages.ipv6),
            (0x8847, stages.mpls),
            (0x8848, stages.mpls),
            (0x8864, pppoe),
            (0x894f, stages.nsh),
        ] {
            self.asm.jump_if(R9.is(kind), stage);
        }
    }

    /// Reads a VLAN tag. The number of tags is limited, and includes a tag that the kernel keeps
    /// beside the frame: if there is such a tag, the walk ends instead of reading the `last` tag.
    fn tag(&mut self, last: bool, typed: Label, cut: Label, end: Label) {
        let [tag, alone] = self.asm.labels();
        for kind in TAGS {
            self.asm.jump_if(R9.is(kind), tag);
        }
        self.asm.jump(typed);
        self.asm.bind(tag);
        if last {
            self.asm.jump_if(R7.has_any(INNER), alone);
            self.tag_beside(alone);
            self.asm.jump(end);
        }
        self.asm.bind(alone);
        let tag = self.here(0, 4, cut);
        tag.at(2).half(&mut self.asm, R9);
        self.asm.alu(Op::Add, R7, TAG);
        self.asm.alu(Op::Add, R8, 4);
    }

    /// Skips the tag of a switch vendor, and the VLAN tags behind it. r9 has the Ethernet type of
    /// the vendor's tag.
    fn makers_tag(&mut self, end: Label) {
        let [arista, passed, typed] = self.asm.labels();
        for (kind, len) in [(0x8926, 4), (0x8988, 6)] {
            self.asm.when(R9.is(kind), |asm| {
                asm.alu(Op::Add, R8, len);
                asm.jump(passed);
            });
        }
        self.asm.branch(R9.is(0xd28b), arista, end);
        self.asm.bind(arista);
        let version = self.here(0, 4, end);
        version.half(&mut self.asm, R1);
        self.asm.jump_if(R1.is_not(1), end);
        version.at(3).byte(&mut self.asm, R1);
        self.asm.alu(Op::Right, R1, 4);
        self.asm.alu(Op::Add, R8, 4 + 6);
        self.asm.jump_if(R1.is(2), passed);
        self.asm.alu(Op::Add, R8, 2);
        self.asm.jump_if(R1.is_not(1), end);
        self.asm.bind(passed);
        let kind = self.here(0, 2, end);
        kind.half(&mut self.asm, R9);
        self.asm.alu(Op::Add, R8, 2);
        for _ in 0..TAGS_BEHIND_MAX {
            let tag = self.asm.label();
            for kind in TAGS {
                self.asm.jump_if(R9.is(kind), tag);
            }
            self.asm.jump(typed);
            self.asm.bind(tag);
            self.read(R9, Width::Half, Origin::Current, 2, end);
            self.asm.alu(Op::Add, R8, 4);
        }
        self.asm.bind(typed);
    }

    /// Walks PPPoE (RFC 2516).
    fn pppoe(&mut self, stages: Stages, end: Label) {
        self.read(R1, Width::Half, Origin::Current, 0, end);
        self.asm.jump_if(R1.is_not(0x1100), end);
        self.read(R1, Width::Half, Origin::Current, 6, end);
        self.asm.alu(Op::Add, R8, 8);
        self.asm.jump_if(R1.is(0x0021), stages.ipv4);
        self.asm.branch(R1.is(0x0057), stages.ipv6, end);
    }

    /// Walks MPLS labels (RFC 3032).
    fn mpls(&mut self, stages: Stages, end: Label) {
        self.asm.bind(stages.mpls);
        for _ in 0..LABELS_MAX {
            let label = self.here(0, 4, end);
            label.at(2).byte(&mut self.asm, R1);
            self.asm.alu(Op::Add, R8, 4);
            self.asm.jump_if(R1.has_any(1), stages.untyped);
        }
        self.asm.jump(end);
    }

    /// Walks NSH (RFC 8300).
    fn nsh(&mut self, stages: Stages, end: Label) {
        self.asm.bind(stages.nsh);
        let header = self.first_four(Origin::Current, 0, 8, end);
        header.half(&mut self.asm, R1);
        header.at(3).byte(&mut self.asm, R2);
        self.asm.jump_if(R1.has_any(0xe000), end);
        self.asm.set(R1, (R1 & 0x3f) << 2);
        self.asm.jump_if(R1.below(8), end);
        self.asm.jump_if(R1.above(NSH_LEN_MAX), end);
        self.asm.alu(Op::Add, R8, R1);
        self.asm.jump_if(R2.is(1), stages.ipv4);
        self.asm.jump_if(R2.is(2), stages.ipv6);
        self.asm.branch(R2.is_not(3), end, stages.untyped);
    }

    /// Walks IPv4 and IPv6 headers. Of untyped payload, reads only IPv4. For any other untyped
    /// payload, only puts the offset of the payload into the view.
    fn network(&mut self, stages: Stages, end: Label) {
        let [unread, not_ip] = self.asm.labels();
        self.asm.bind(stages.untyped);
        self.asm.jump_if(R7.has_any(CHECKED), end);
        self.read(R1, Width::Byte, Origin::Current, 0, end);
        self.asm.alu(Op::Right, R1, 4);
        self.asm.jump_if(R1.is_not(4), unread);
        self.asm.alu(Op::Or, R7, CHECKED);
        self.ipv4(stages, not_ip, end);
        self.asm.bind(not_ip);
        self.asm.branch(R7.has_any(CHECKED), unread, end);
        self.asm.bind(unread);
        self.asm.alu(Op::And, R7, !CHECKED);
        self.asm.set(R1, R8 << TRANSPORT_SHIFT);
        self.asm.alu(Op::Or, R7, R1);
        self.asm.jump(end);
        self.ipv6(stages, end);
    }

    /// Puts the offset in r8 into the view as the network header's offset, and sets `flag`.
    /// Clobbers r2 and r3.
    fn placed(&mut self, flag: i32) {
        let bare = self.asm.label();
        self.asm.set(R2, R7 >> NETWORK_SHIFT);
        self.asm.set(R3, R8 - R2);
        self.asm.set(R2, R3 << NETWORK_SHIFT);
        self.asm.alu(Op::Add, R7, R2);
        self.require(LINK, bare);
        self.asm.alu(Op::Left, R3, BACK_SHIFT - 1);
        self.asm.alu(Op::Or, R7, R3);
        self.asm.bind(bare);
        self.asm.alu(Op::Or, R7, flag);
    }

    /// Walks IPv4 (RFC 791).
    fn ipv4(&mut self, stages: Stages, not_ip: Label, end: Label) {
        let whole = self.asm.label();
        self.asm.bind(stages.ipv4);
        self.forget(WALKED);
        let header = self.here(0, 20, end);
        header.byte(&mut self.asm, R1);
        self.asm.set(R2, R1 >> 4);
        self.asm.jump_if(R2.is_not(4), end);
        self.asm.alu(Op::And, R1, 15);
        self.asm.jump_if(R1.below(5), not_ip);
        self.require_agreement(header, not_ip);
        self.placed(IPV4);
        header.at(9).byte(&mut self.asm, R2);
        self.asm.alu(Op::Or, R7, R2);
        header.at(6).half(&mut self.asm, R2);
        self.asm.alu(Op::And, R2, 0x3fff);
        self.asm.jump_if(R2.is(0), whole);
        self.asm.alu(Op::Or, R7, FRAGMENT);
        self.asm.alu(Op::And, R2, 0x1fff);
        self.asm.jump_if(R2.is(0), whole);
        self.asm.alu(Op::Or, R7, LATER);
        self.asm.jump(end);
        self.asm.bind(whole);
        self.asm.alu(Op::Left, R1, TRANSPORT_SHIFT);
        self.asm.alu(Op::Or, R7, R1);
        self.asm.jump(end);
    }

    /// Walks IPv6 (RFC 8200).
    fn ipv6(&mut self, stages: Stages, end: Label) {
        let [last, transport, typed] = self.asm.labels();
        self.asm.bind(stages.ipv6);
        self.forget(WALKED);
        let header = self.here(0, 40, end);
        header.byte(&mut self.asm, R1);
        self.asm.alu(Op::Right, R1, 4);
        self.asm.jump_if(R1.is_not(6), end);
        self.require(CHECKED, typed);
        header.at(4).half(&mut self.asm, R9);
        self.asm.alu(Op::Add, R9, 40);
        self.require_fit(end);
        self.asm.alu(Op::And, R7, !CHECKED);
        self.asm.bind(typed);
        header.at(6).byte(&mut self.asm, R9);
        self.placed(IPV6);
        self.asm.alu(Op::Add, R8, 40);
        for _ in 0..EXTENSIONS_MAX {
            self.extension(transport, last);
        }
        self.asm.jump(last);
        self.asm.bind(transport);
        self.words_behind_network();
        self.asm.alu(Op::Left, R1, TRANSPORT_SHIFT);
        self.asm.alu(Op::Or, R7, R1);
        self.asm.bind(last);
        self.asm.alu(Op::Or, R7, R9);
    }

    /// Reads an extension header. Jumps to `transport` if r9 has another protocol, and to `last` if
    /// the header is cut off.
    fn extension(&mut self, transport: Label, last: Label) {
        let [fragment, next] = self.asm.labels();
        self.require_one_of(R9, &EXTENSIONS, transport);
        let header = self.first_four(Origin::Current, 0, 8, last);
        self.asm.set(R3, R9);
        header.byte(&mut self.asm, R9);
        self.asm.jump_if(R3.is(44), fragment);
        header.at(1).byte(&mut self.asm, R1);
        self.asm.when(R3.is(51), |asm| {
            asm.set(R1, (R1 + 2) << 2);
            asm.alu(Op::Add, R8, R1);
            asm.jump(next);
        });
        self.asm.set(R1, (R1 + 1) << 3);
        self.asm.alu(Op::Add, R8, R1);
        self.asm.jump(next);
        self.asm.bind(fragment);
        self.fragment(header, last);
        self.asm.bind(next);
    }

    /// Reads the fragment header at r8. It replaces the view's data of an earlier fragment header.
    fn fragment(&mut self, header: Bytes, last: Label) {
        self.asm.set(
            R7,
            ((R7 << (64 - FRAGMENT_SHIFT)) >> (64 - FRAGMENT_SHIFT)) & !FRAGMENT,
        );
        self.words_behind_network();
        self.asm.alu(Op::Left, R1, FRAGMENT_SHIFT);
        self.asm.alu(Op::Or, R7, R1);
        self.asm.alu(Op::Add, R8, 8);
        header.at(2).half(&mut self.asm, R1);
        self.asm.when(R1.at_least(8), |asm| {
            asm.alu(Op::Or, R7, FRAGMENT | LATER);
            asm.jump(last);
        });
        self.asm.alu(Op::And, R1, 1);
        self.asm
            .unless(R1.is(0), |asm| asm.alu(Op::Or, R7, FRAGMENT));
    }

    /// Loads into r1 the distance from the network header to the offset in r8, divided by 4.
    /// Clobbers r2.
    fn words_behind_network(&mut self) {
        self.asm.set(R1, R8);
        self.asm.set(R2, (R7 >> NETWORK_SHIFT) & 0x7fff);
        self.asm.set(R1, (R1 - R2) >> 2);
    }

    /// Begins a view with only these flags. Keeps [`LATE_START`].
    pub(super) fn restart_view(&mut self, flags: i32) {
        self.asm.set(R7, (R7 & LATE_START) | flags);
    }

    /// Sets r8 to the offset of the transport header. Clobbers r2 and r3.
    pub(super) fn transport_to_current(&mut self) {
        self.position_of_transport();
        self.asm.set(R8, R2);
    }
}

/// The longest NSH header that the walk skips.
const NSH_LEN_MAX: i32 = 24;
const _: () = assert!(NSH_LEN_MAX as usize == NSH_MAX);
/// Ethernet types of VLAN tags.
const TAGS: [i32; 5] = [0x8100, 0x88a8, 0x9100, 0x9200, 0x9300];
/// The IPv6 extension headers that the walk skips.
const EXTENSIONS: [u8; 5] = [0, 43, 44, 51, 60];
