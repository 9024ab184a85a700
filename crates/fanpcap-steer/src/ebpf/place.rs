//! Looks up a packet's slot in the group's table, which has a slot for each bucket of hashes and
//! for each rank of members. The table is an array of eight-byte rows (`fanpcap_buckets::layout`).

use super::emitter::{Emitter, Role};
use super::maps::Map;
use super::stack::{CLASS_AND_FLOW, PART};
use fanpcap_bpf::TABLE_ROW;
use fanpcap_bpf::assembler::*;
use fanpcap_bpf::kernel::*;
use fanpcap_buckets::layout::{
    BUCKETS, HOLDERS, LOADS, NOWHERE, OWNERS, RANK_COUNT, RANKS, SLOTS, STICKY_IDS,
};

/// The bit that marks r8 as a member's number. Hashes and numbers do not have this bit.
const NUMBER: i32 = i32::MIN;
/// The shift from bytes to rows, and from bytes to bits: a row has 8 bytes, and a byte has 8 bits.
const BY_EIGHT: i32 = TABLE_ROW.trailing_zeros() as i32;
/// Reverses the order of a row's bytes on big-endian machines, on which the first byte is the
/// highest.
const LOWEST_LAST: i32 = if cfg!(target_endian = "big") { 56 } else { 0 };
/// Mask of the bucket in a hash.
const BUCKET_MASK: i32 = 0xfff;
/// Mask of all ranks that the table can hold.
const RANK_MASK: i32 = 0xff;
/// Mask of an entry's lowest byte, which is the slot in an entry of the holders, and the number in
/// a sticky id.
const SLOT_MASK: i32 = 0xff;
/// Mask of the number of bits by which a byte is shifted in its row.
const BYTE_MASK: i32 = 56;
/// Offset in bytes of the slot of rank 0.
const FIRST_RANK: i32 = 4096;
/// Index of the row with the number of ranks.
const COUNT_ROW: i32 = 544;
/// Index of the row with slot 0's sticky id.
const SEATS_ROW: i32 = 576;
/// Index of the row with the holder of number 0.
const HOLDERS_ROW: i32 = 832;
/// Index of the row with bucket 0's load.
const LOADS_ROW: i32 = 8192;
/// Index of the row with the number of dropped packets.
const NOWHERE_ROW: i32 = 6892;
/// The index of the loopback device of each network namespace (net/net_namespace.h).
const LOOPBACK_IFINDEX: i32 = 1;

const _: () = assert!(OWNERS == 0 && TABLE_ROW == 8);
const _: () = assert!(BUCKET_MASK as usize == BUCKETS - 1 && RANK_MASK as usize == SLOTS - 1);
const _: () = assert!(FIRST_RANK as usize == RANKS && COUNT_ROW as usize * 8 == RANK_COUNT);
const _: () = assert!(SEATS_ROW as usize * 8 == STICKY_IDS && HOLDERS_ROW as usize * 8 == HOLDERS);
const _: () = assert!(LOADS_ROW as usize * 8 == LOADS);
const _: () = assert!(NOWHERE_ROW as usize * 8 == NOWHERE);

impl Emitter<'_> {
    /// Puts a constant number of a member into r8. XORs the number into a 0 that the verifier does
    /// not know to be 0. So paths that differ only in the number are one state to the verifier.
    pub(super) fn by_member(&mut self, member: u32) {
        self.asm.load(Width::Word, R8, R6, 16);
        self.asm.set(R1, R8);
        self.asm.alu(Op::Xor, R8, R1);
        self.asm.alu32(Op::Xor, R8, member as i32);
        self.is_number();
    }

    /// Marks r8 as a member's number.
    pub(super) fn is_number(&mut self) {
        if matches!(self.role, Role::Place { .. } | Role::Deliver { .. }) {
            self.numbers = true;
            self.asm.alu32(Op::Xor, R8, NUMBER);
        }
    }

    /// Puts the slot for the hash or the number in r8 into r0. Then jumps to `found`, or ends the
    /// BPF program if there is no `found`. Binds `drop`: a dropped packet gets the slot of hash 0,
    /// so that the filter of a live member counts the packet as dropped. With `flows`, the packets
    /// with a hash go to the member that last had this hash. If the table has no row for the hash
    /// or the number, falls through with slot 0.
    pub(super) fn place(&mut self, drop: Option<Label>, flows: Option<u32>, found: Option<Label>) {
        let [hash, owner, none] = self.asm.labels();
        self.asm.note("slot");
        if self.numbers {
            self.asm.jump32_if(R8.at_most(i32::MAX), hash);
            self.rank(none);
            self.asm.jump(owner);
        } else {
            self.asm.jump(hash);
        }
        if let Some(drop) = drop {
            self.asm.bind(drop);
            self.asm.set(R8, 0);
        }
        if flows.is_some() || self.counts_loads() {
            self.asm.jump(owner);
        }
        self.asm.bind(hash);
        self.count_load(none);
        if let Some(flows) = flows {
            let classes = self.choices.classes;
            self.stay(Map::Flows { flows, classes }, found, none);
        } else {
            self.asm.alu32(Op::And, R8, BUCKET_MASK);
        }
        self.asm.bind(owner);
        self.slot_at(none);
        self.found(found);
        self.asm.bind(none);
        self.asm.set(R0, 0);
    }

    fn found(&mut self, found: Option<Label>) {
        match found {
            Some(found) => self.asm.jump(found),
            None => self.asm.exit(),
        }
    }

    /// In a balanced group, counts the packet for the bucket of the hash in r8. The addition is not
    /// atomic: if two CPUs count packets of the bucket at the same time, one packet may stay
    /// uncounted. Loads need not be exact.
    fn count_load(&mut self, none: Label) {
        if self.counts_loads() {
            self.asm.set(R2, R8);
            self.asm.alu32(Op::And, R2, BUCKET_MASK);
            self.asm.alu(Op::Add, R2, LOADS_ROW);
            self.row(none);
            self.asm.load(Width::Word, R1, R0, 0);
            self.asm.alu(Op::Add, R1, 1);
            self.asm.store(Width::Word, R0, 0, R1);
        }
    }

    /// In a member's filter, counts a packet that the steering program drops. On the loopback
    /// device a packet comes twice, and the reader drops the outgoing copy. So this does not count
    /// outgoing copies there.
    pub(super) fn count_nowhere(&mut self) {
        let [counts, none] = self.asm.labels();
        self.context(R1, skb::PKT_TYPE);
        self.asm.jump_if(R1.is_not(PACKET_OUTGOING), counts);
        self.context(R1, skb::IFINDEX);
        self.asm.jump_if(R1.is(LOOPBACK_IFINDEX), none);
        self.asm.bind(counts);
        self.asm.set(R2, NOWHERE_ROW);
        self.row(none);
        self.asm.set(R1, 1);
        self.asm.atomic_add(R0, 0, R1);
        self.asm.bind(none);
    }

    /// Puts into r0 the slot of the member that last had the flow with the hash in r8. If that
    /// member is gone, puts the slot of the hash's bucket into r0 and remembers the new member.
    /// Clobbers r7.
    fn stay(&mut self, flows: Map, found: Option<Label>, none: Label) {
        let moved = self.asm.label();
        let key = self.spots.key;
        self.store_flow();
        self.flow(flows);
        self.asm.call(MAP_LOOKUP, ());
        self.asm.jump_if(R0.is(0), moved);
        self.asm.load(Width::Double, R7, R0, 0);
        self.word_of(R7, HOLDERS_ROW, none);
        self.asm.set(R1, (R0 ^ R7) >> 8);
        self.asm.jump_if(R1.is_not(0), moved);
        self.asm.alu(Op::And, R0, SLOT_MASK);
        self.found(found);
        self.asm.bind(moved);
        self.asm.alu32(Op::And, R8, BUCKET_MASK);
        self.slot_at(none);
        self.asm.set(R7, R0);
        self.word_of(R7, SEATS_ROW, none);
        self.unless(R0.is(0), |this| {
            this.asm.store(Width::Double, R10, key, R0);
            this.flow(flows);
            this.asm.call(MAP_UPDATE, (R1, R2, stack(key), 0));
        });
        self.asm.set(R0, R7);
        self.found(found);
    }

    /// Stack offset of a flow's key.
    fn flow_key(&self) -> i16 {
        if self.choices.classes {
            CLASS_AND_FLOW
        } else {
            self.spots.flow
        }
    }

    /// Stores the key of the flow with the hash in r8.
    fn store_flow(&mut self) {
        let key = self.flow_key();
        if !self.choices.classes {
            return self.asm.store(Width::Word, R10, key, R8);
        }
        // With the class in the key, a member of another class never gets the packet.
        self.asm.load(Width::Double, R1, R10, PART);
        self.asm.alu(Op::Left, R1, 32);
        self.asm.set(R2, R8);
        // Keeps only the hash.
        self.asm.alu32(Op::And, R2, -1);
        self.asm.alu(Op::Or, R1, R2);
        self.asm.store(Width::Double, R10, key, R1);
    }

    /// Loads the map of flows and the key as a helper's arguments.
    fn flow(&mut self, flows: Map) {
        let flows = self.maps.of(flows);
        self.asm.map(R1, flows);
        self.asm.set(R2, R10 + i32::from(self.flow_key()));
    }

    /// Loads into r0 the row whose number is `first` plus the lowest byte of `index`.
    fn word_of(&mut self, index: Register, first: i32, none: Label) {
        self.asm.set(R2, index);
        self.asm.set(R2, (R2 & SLOT_MASK) + first);
        self.row(none);
        self.asm.load(Width::Double, R0, R0, 0);
    }

    /// Replaces the number in r8 by the offset of its rank's slot. Jumps to `none` if there are no
    /// ranks.
    fn rank(&mut self, none: Label) {
        self.ranks(none);
        self.asm.set(R1, R0);
        self.asm.alu32(Op::And, R8, i32::MAX);
        self.asm.alu32(Op::Mod, R8, R1);
        // Members write the number of ranks to the table, so R1 may be any number.
        self.asm.set32(R8, (R8 & RANK_MASK) + FIRST_RANK);
    }

    /// Puts the number of ranks into r0, or jumps to `none` if this number is 0.
    pub(super) fn ranks(&mut self, none: Label) {
        self.asm.set(R2, COUNT_ROW);
        self.row_of_part(none);
        self.asm.load(Width::Word, R0, R0, 0);
        self.asm.jump_if(R0.is(0), none);
    }

    /// Puts into r0 the slot of the bucket in the low bits of r8. Clobbers r8.
    pub(super) fn owner(&mut self, none: Label) {
        self.count_load(none);
        self.asm.alu32(Op::And, R8, BUCKET_MASK);
        self.slot_at(none);
    }

    /// Puts into r0 the slot of the rank in r8. Clobbers r8.
    pub(super) fn rank_slot(&mut self, none: Label) {
        self.asm.set32(R8, (R8 & RANK_MASK) + FIRST_RANK);
        self.slot_at(none);
    }

    /// Loads into r0 the byte at the offset in r8, counted from the first row of the packet's
    /// class.
    fn slot_at(&mut self, none: Label) {
        self.asm.set(R2, R8);
        self.asm.alu32(Op::Right, R2, BY_EIGHT);
        self.row_of_part(none);
        self.asm.load(Width::Double, R0, R0, 0);
        self.asm.set32(R8, (R8 << BY_EIGHT) & BYTE_MASK);
        if LOWEST_LAST != 0 {
            self.asm.alu32(Op::Xor, R8, LOWEST_LAST);
        }
        self.asm.set(R0, (R0 >> R8) & 255);
    }

    /// As [`Self::row`], but the number in r2 counts from the first row of the packet's class.
    fn row_of_part(&mut self, none: Label) {
        if self.choices.classes {
            self.asm.load(Width::Double, R1, R10, PART);
            self.asm.alu(Op::Add, R2, R1);
        }
        self.row(none);
    }

    /// Puts into r0 the address of the table's row whose number is in r2. The kernel replaces the
    /// call by an addition (`array_map_gen_lookup`). The jump to `none` is never taken: the table
    /// has the row.
    fn row(&mut self, none: Label) {
        // At XDP the table of each group has parts for classes.
        let classes = matches!(self.role, Role::Deliver { .. });
        let table = self.maps.of(Map::Table { classes });
        self.asm.store(Width::Word, R10, self.spots.row, R2);
        self.asm
            .call(MAP_LOOKUP, (map(table), R10 + i32::from(self.spots.row)));
        self.asm.jump_if(R0.is(0), none);
    }
}
