//! Code that takes the coordinator's frames from the stream: see [`crate::in_line`].

use fanpcap_bpf::assembler::*;
use fanpcap_bpf::kernel::*;

use super::Program;
use super::code::{MAP_CONTROL, end, offset, reach};
use super::frame::{head, raw};
use crate::in_line::{ETHER_TYPE, Kind, NUMBERS, USED, VERSION};
use crate::layout::{control, counts};

impl Program {
    /// Handles a coordinator's frame whose number was announced, and ends the BPF program. Jumps to
    /// `forged` for other frames that look like a coordinator's. Continues for packets.
    pub(super) fn in_line(&self, asm: &mut Assembler, forged: Label) {
        let [refused, packet, beacon, update] = asm.labels();
        asm.note("in-line frame?");
        self.find(asm, packet);
        asm.load_big_endian(Width::Double, R5, R1, 38);
        asm.load_big_endian(Width::Double, R7, R1, 22);
        asm.jump_if(R5.is(0), refused);
        asm.load(Width::Byte, R3, R1, 15);
        asm.jump_if(R3.is(i32::from(Kind::Beacon.number())), beacon);
        asm.branch(R3.is(i32::from(Kind::Update.number())), update, refused);
        asm.bind(beacon);
        self.beacon(asm, refused);
        asm.bind(update);
        self.update(asm, refused);
        asm.bind(refused);
        self.count(asm, counts::FORGED);
        self.require_table(asm);
        asm.jump(forged);
        asm.bind(packet);
    }

    /// Puts the address of a frame of this cluster, without its VLAN tag, into r1. Jumps to
    /// `packet` for other frames.
    fn find(&self, asm: &mut Assembler, packet: Label) {
        head(asm, USED, packet);
        asm.load(Width::Half, R3, R1, 12);
        asm.unless(R3.is(raw(ETHER_TYPE)), |asm| {
            asm.unless(R3.is(raw(0x8100)), |asm| {
                asm.jump_if(R3.is_not(raw(0x88a8)), packet)
            });
            asm.alu(Op::Add, R1, 4);
            reach(asm, USED, R3, packet);
            asm.load(Width::Half, R3, R1, 12);
            asm.jump_if(R3.is_not(raw(ETHER_TYPE)), packet);
        });
        asm.load(Width::Byte, R3, R1, 14);
        asm.jump_if(R3.is_not(i32::from(VERSION)), packet);
        asm.load(Width::Word, R3, R1, 18);
        asm.jump32_if(R3.is_not(self.cluster.to_be() as i32), packet);
    }

    /// Accepts a beacon whose number is in r5 and whose sequence is in r7. On a node with several
    /// devices, also drops copies of the last beacon, which the other devices may receive.
    fn beacon(&self, asm: &mut Assembler, forged: Label) {
        let is_one_of_several = self.lanes.is_one_of_several();
        let copy = match is_one_of_several {
            true => asm.label(),
            false => forged,
        };
        asm.load_big_endian(Width::Double, R8, R1, 30);
        expect(asm, control::BEACONS, copy);
        if is_one_of_several {
            // A copy may come on another device at once, so the number is stored first.
            asm.value(R4, MAP_CONTROL, offset(control::LAST_NUMBER));
            asm.store(Width::Double, R4, 0, R5);
        }
        asm.store(Width::Double, R3, 0, 0);
        asm.call(KTIME_GET_NS, ());
        asm.value(R9, MAP_CONTROL, offset(control::LAST));
        asm.store(Width::Double, R9, 16, R0);
        asm.store(Width::Double, R9, 8, R8);
        asm.store(Width::Double, R9, 0, R7);
        self.count(asm, counts::BEACONS);
        end(asm, XDP_DROP);
        if is_one_of_several {
            asm.bind(copy);
            asm.value(R3, MAP_CONTROL, offset(control::LAST_NUMBER));
            asm.load(Width::Double, R4, R3, 0);
            asm.jump_if(R4.is_not(R5), forged);
            end(asm, XDP_DROP);
        }
    }

    /// Accepts a topology update whose number is in r5 and whose sequence is in r7.
    fn update(&self, asm: &mut Assembler, forged: Label) {
        expect(asm, control::UPDATES, forged);
        asm.store(Width::Double, R3, 0, 0);
        asm.value(R3, MAP_CONTROL, offset(control::TURNS));
        asm.store(Width::Double, R3, 0, 0);
        asm.value(R3, MAP_CONTROL, offset(control::NEXT));
        asm.load(Width::Double, R4, R3, 0);
        asm.unless(R4.is(0), |asm| {
            asm.store(Width::Double, R3, 0, 0);
            asm.value(R3, MAP_CONTROL, offset(control::WORD));
            asm.store(Width::Double, R3, 0, R4);
        });
        self.count(asm, counts::UPDATES);
        end(asm, XDP_DROP);
    }
}

/// Jumps to `forged` unless the number in r5 was announced for the sequence in r7. Puts the address
/// of the announced number into r3, so that the caller can clear it. Clobbers r0 and r4.
fn expect(asm: &mut Assembler, numbers: usize, forged: Label) {
    asm.set(R4, (R7 & offset(NUMBERS - 1)) << 3);
    asm.value(R3, MAP_CONTROL, offset(numbers));
    asm.alu(Op::Add, R3, R4);
    asm.load(Width::Double, R0, R3, 0);
    asm.jump_if(R0.is_not(R5), forged);
}

const _: () = assert!(NUMBERS.is_power_of_two());
