//! Ancillary loads of a classic BPF program: metadata of a socket buffer (linux/filter.h,
//! SKF_AD_OFF and others).

use super::super::emitter::Emitter;
use super::super::stack::LOADED;
use super::{Made, Making};
use fanpcap_bpf::assembler::*;
use fanpcap_bpf::classic::ancillary::*;
use fanpcap_bpf::kernel::*;

const SKF_NET_OFF: u32 = 0xfff0_0000;
const SKF_LL_OFF: u32 = 0xffe0_0000;

/// The hardware type of Ethernet (linux/if_arp.h). It is a constant, because filters are only for
/// Ethernet.
const ARPHRD_ETHER: i32 = 1;

impl Emitter<'_> {
    /// Loads into r1 from an offset beyond 2^31. Such an offset means metadata, or bytes relative
    /// to the network header or to the frame's first byte.
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
        self.asm.call(
            SKB_LOAD_BYTES_RELATIVE,
            (R6, offset as i32, stack(LOADED), i32::from(size), start),
        );
        self.asm.jump_if(R0.is_not(0), filter.out);
        self.loaded(size);
    }

    pub(super) fn ancillary(&mut self, filter: &Making<'_>, what: u32) -> Made {
        match what {
            SKF_AD_PROTOCOL => self.big_endian_context(skb::PROTOCOL),
            SKF_AD_PKTTYPE => self.context(R1, skb::PKT_TYPE),
            SKF_AD_IFINDEX => {
                self.context(R1, skb::IFINDEX);
                self.asm.jump_if(R1.is(0), filter.out);
            }
            SKF_AD_MARK => self.context(R1, skb::MARK),
            SKF_AD_QUEUE => self.context(R1, skb::QUEUE_MAPPING),
            SKF_AD_HATYPE => self.asm.set(R1, ARPHRD_ETHER),
            SKF_AD_RXHASH => self.context(R1, skb::HASH),
            SKF_AD_CPU => self.helper(GET_SMP_PROCESSOR_ID),
            SKF_AD_ALU_XOR_X => self.asm.set(R1, R7 ^ R8),
            SKF_AD_VLAN_TAG => self.context(R1, skb::VLAN_TCI),
            SKF_AD_VLAN_TAG_PRESENT => self.context(R1, skb::VLAN_PRESENT),
            SKF_AD_RANDOM => self.helper(GET_PRANDOM_U32),
            SKF_AD_VLAN_TPID => self.big_endian_context(skb::VLAN_PROTO),
            _ => return Err(filter.refuse("an eBPF program can't read this metadata")),
        }
        Ok(())
    }

    fn big_endian_context(&mut self, field: i16) {
        self.context(R1, field);
        self.asm.big_endian(R1, 16);
    }

    /// Adds the length of the tag beside the frame to r0, the number of bytes to keep. Adds nothing
    /// if r0 is 0, or if the frame has no such tag.
    pub(super) fn keep_tag_beside(&mut self) {
        let done = self.asm.label();
        self.tag_beside(done);
        self.keep_tag();
        self.asm.bind(done);
    }

    fn helper(&mut self, helper: i32) {
        self.asm.call(helper, ());
        self.asm.set(R1, R0);
    }
}
