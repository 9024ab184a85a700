//! Ancillary loads of a classic BPF program: metadata of a socket buffer (linux/filter.h,
//! SKF_AD_OFF and others).

use super::super::emitter::Emitter;
use super::super::stack::LOADED;
use super::super::target::{
    GET_PRANDOM_U32, GET_SMP_PROCESSOR_ID, HASH, IFINDEX, MARK, PACKET_TYPE, PROTOCOL,
    QUEUE_MAPPING, SKB_LOAD_BYTES_RELATIVE, VLAN_PRESENT, VLAN_PROTO, VLAN_TCI,
};
use super::{Made, Making};
use fanpcap_bpf::assembler::Width;
use fanpcap_bpf::assembler::{If, Op, R0, R1, R2, R3, R4, R5, R6, R7, R8, R10};

/// linux/filter.h: the first ancillary offset, as a 32-bit number.
const SKF_AD_OFF: u32 = 0xffff_f000;
const SKF_NET_OFF: u32 = 0xfff0_0000;
const SKF_LL_OFF: u32 = 0xffe0_0000;

/// linux/if_arp.h: filters are for Ethernet.
const ARPHRD_ETHER: i32 = 1;

impl Emitter<'_> {
    /// A load from an offset beyond 2^31, to r1.
    pub(super) fn beside(&mut self, filter: &Making<'_>, k: u32, size: u8) -> Made {
        match k {
            SKF_AD_OFF.. => self.ancillary(filter, k - SKF_AD_OFF)?,
            SKF_NET_OFF.. => self.behind_header(filter, k - SKF_NET_OFF, size, START_NETWORK),
            SKF_LL_OFF.. => self.behind_header(filter, k - SKF_LL_OFF, size, START_MAC),
            _ => self.asm.jump(filter.out),
        }
        Ok(())
    }

    fn behind_header(&mut self, filter: &Making<'_>, offset: u32, size: u8, start: i32) {
        self.asm.set(R1, R6);
        self.asm.set(R2, offset as i32);
        self.asm.set(R3, R10);
        self.asm.alu(Op::Add, R3, i32::from(LOADED));
        self.asm.set(R4, i32::from(size));
        self.asm.set(R5, start);
        self.asm.call(SKB_LOAD_BYTES_RELATIVE);
        self.asm.jump_if(If::NotEqual, R0, 0, filter.out);
        self.loaded(size);
    }

    fn ancillary(&mut self, filter: &Making<'_>, what: u32) -> Made {
        match what {
            0 => self.big_endian_context(PROTOCOL),
            4 => self.context(PACKET_TYPE),
            8 => {
                self.context(IFINDEX);
                self.asm.jump_if(If::Equal, R1, 0, filter.out);
            }
            20 => self.context(MARK),
            24 => self.context(QUEUE_MAPPING),
            28 => self.asm.set(R1, ARPHRD_ETHER),
            32 => self.context(HASH),
            36 => self.helper(GET_SMP_PROCESSOR_ID),
            40 => {
                self.asm.set(R1, R7);
                self.asm.alu(Op::Xor, R1, R8);
            }
            44 => self.context(VLAN_TCI),
            48 => self.context(VLAN_PRESENT),
            56 => self.helper(GET_PRANDOM_U32),
            60 => self.big_endian_context(VLAN_PROTO),
            _ => return Err(filter.refuse("an eBPF program can't ask the kernel for that")),
        }
        Ok(())
    }

    fn context(&mut self, field: i16) {
        self.asm.load(Width::Word, R1, R6, field);
    }

    fn big_endian_context(&mut self, field: i16) {
        self.context(field);
        self.asm.big_endian(R1, 16);
    }

    fn helper(&mut self, helper: i32) {
        self.asm.call(helper);
        self.asm.set(R1, R0);
    }
}

/// linux/bpf.h, enum bpf_hdr_start_off.
const START_MAC: i32 = 0;
const START_NETWORK: i32 = 1;
