//! A handle's own filter at XDP, and the metadata of sent packets. A filter for a live handle
//! expects the first VLAN tag beside the frame, where the kernel's receive path puts it
//! (net/core/skbuff.c, `skb_vlan_untag`), and the frame's bytes without this tag. At XDP the tag is
//! still among the bytes.

use super::super::emitter::Emitter;
use super::super::stack::TWO_PARTS;
use super::{Made, Making, Source, TAG_LEN};
use fanpcap_bpf::Classic;
use fanpcap_bpf::assembler::*;
use fanpcap_bpf::classic::ancillary::*;
use fanpcap_bpf::kernel::*;

/// The hardware type of Ethernet (linux/if_arp.h).
const ARPHRD_ETHER: i32 = 1;

const ON_SOCKETS: &str = "only a filter on a socket can read this metadata";

/// A number of bytes that no record of a frame has.
const LONGER: i32 = 1 << 20;

/// The offset of a tag, and the offset behind it.
const TAG: u16 = 12;
const BEHIND_TAG: u16 = 16;

// linux/if_ether.h: protocols for frames that have a length instead of a type.
const ETH_P_802_3_MIN: i32 = 0x0600;
const ETH_P_802_3: i32 = 1;
const ETH_P_802_2: i32 = 4;

impl Emitter<'_> {
    /// Translates a filter twice: once for frames with a tag, and once for frames without a tag.
    pub(super) fn device_filter(&mut self, code: &[Classic], text: &str) -> Made {
        let [untagged, tagged] = self.asm.labels();
        let labels = Vec::new();
        let first = Making {
            text,
            source: Source::Device,
            labels,
            out: untagged,
            at: 0,
        };
        // A frame that ends within its tag counts as untagged.
        self.bytes(&first, TAG, 4);
        self.asm.set(R9, R1);
        self.asm.alu(Op::Right, R1, 16);
        for kind in [0x8100, 0x88a8] {
            self.asm.jump_if(R1.is(kind), tagged);
        }
        self.asm.jump(untagged);
        self.asm.bind(tagged);
        self.bytes(&first, BEHIND_TAG, 2);
        self.classic(code, text, Source::Untagged)?;
        self.asm.bind(untagged);
        self.asm.note("of a frame without a tag");
        self.classic(code, text, Source::Device)
    }

    /// Adds the tag's length to r0, the number of bytes to keep, unless r0 is 0.
    pub(super) fn keep_tag(&mut self) {
        let done = self.asm.label();
        self.asm.jump_if(R0.is(0), done);
        // Adds nothing to a number that is already larger than any frame: the sum could overflow.
        self.asm.jump_if(R0.at_least(LONGER), done);
        self.asm.alu(Op::Add, R0, TAG_LEN);
        self.asm.bind(done);
    }

    /// Loads bytes at a constant offset into r1, from a frame with a tag. Offsets count as if the
    /// tag were not in the frame.
    pub(super) fn untagged(&mut self, filter: &Making<'_>, offset: u16, size: u8) {
        let len = u16::from(size);
        match offset.checked_add(4) {
            None => self.asm.jump(filter.out),
            Some(behind) if offset >= TAG => self.bytes(filter, behind, size),
            Some(_) if offset + len <= TAG => self.bytes(filter, offset, size),
            Some(_) => self.on_both_sides(filter, offset, len),
        }
    }

    /// Loads up to 4 bytes into r1, of which the first are before the tag and the last are behind
    /// the tag.
    fn on_both_sides(&mut self, filter: &Making<'_>, offset: u16, len: u16) {
        let all = i32::from(len) + TAG_LEN;
        self.copy(i32::from(offset), all, TWO_PARTS, filter.out);
        self.asm.set(R1, 0);
        for at in offset..offset + len {
            let at = if at < TAG { at } else { at + 4 };
            let place = TWO_PARTS + i16::try_from(at - offset).unwrap_or(0);
            self.asm.load(Width::Byte, R2, R10, place);
            self.asm.set(R1, (R1 << 8) | R2);
        }
    }

    /// Loads bytes that are before the tag or on both sides of the tag, and jumps to `done`. Falls
    /// through for bytes behind the tag; r2 then has their offset in the frame.
    pub(super) fn indirect_untagged(
        &mut self,
        filter: &Making<'_>,
        size: u8,
        number: i32,
        done: Label,
    ) {
        let len = u16::from(size);
        self.when(R2.below(i32::from(TAG)), |this| {
            for offset in TAG + 1 - len..TAG {
                this.when(R2.is(i32::from(offset)), |this| {
                    this.on_both_sides(filter, offset, len);
                    this.asm.jump(done);
                });
            }
            this.load_placed(filter, R8 + number, size);
            this.asm.jump(done);
        });
        self.asm.alu(Op::Add, R2, TAG_LEN);
    }

    /// Loads metadata into r1, for a load at an offset beyond 2^31. Refuses metadata that is not
    /// known at XDP, for sent packets too, and all other offsets beyond 2^31.
    pub(super) fn beside_at_device(&mut self, filter: &Making<'_>, k: u32) -> Made {
        let tag = (filter.source == Source::Untagged).then_some(R9);
        let Some(what) = k.checked_sub(SKF_AD_OFF) else {
            return Err(filter.refuse("it loads from outside the frame"));
        };
        if filter.source == Source::Sent {
            return self.beside_sent(filter, what);
        }
        match (what, tag) {
            (SKF_AD_PROTOCOL, _) => self.protocol_of_frame(filter),
            (SKF_AD_PKTTYPE, _) => self.asm.set(R1, PACKET_HOST),
            (SKF_AD_IFINDEX, _) => self.interface(),
            (SKF_AD_HATYPE, _) => self.asm.set(R1, ARPHRD_ETHER),
            (SKF_AD_ALU_XOR_X, _) => self.asm.set(R1, R7 ^ R8),
            (SKF_AD_VLAN_TAG | SKF_AD_VLAN_TAG_PRESENT | SKF_AD_VLAN_TPID, None) => {
                self.asm.set(R1, 0)
            }
            (SKF_AD_VLAN_TAG, Some(tag)) => self.asm.set(R1, tag & 0xffff),
            (SKF_AD_VLAN_TAG_PRESENT, Some(_)) => self.asm.set(R1, 1),
            (SKF_AD_VLAN_TPID, Some(tag)) => self.asm.set(R1, tag >> 16),
            _ => return Err(filter.refuse(ON_SOCKETS)),
        }
        Ok(())
    }

    /// Loads metadata of a sent packet into r1.
    fn beside_sent(&mut self, filter: &Making<'_>, what: u32) -> Made {
        match what {
            // The kernel sets the type only on the copies that packet sockets get.
            SKF_AD_PKTTYPE => self.asm.set(R1, PACKET_OUTGOING),
            SKF_AD_PROTOCOL
            | SKF_AD_IFINDEX
            | SKF_AD_HATYPE
            | SKF_AD_ALU_XOR_X
            | SKF_AD_VLAN_TAG
            | SKF_AD_VLAN_TAG_PRESENT
            | SKF_AD_VLAN_TPID => self.ancillary(filter, what)?,
            _ => return Err(filter.refuse(ON_SOCKETS)),
        }
        Ok(())
    }

    /// Loads the frame's protocol into r1, as the receive path determines it (net/ethernet/eth.c,
    /// `eth_type_trans`).
    fn protocol_of_frame(&mut self, filter: &Making<'_>) {
        let done = self.asm.label();
        let type_at = match filter.source {
            Source::Untagged => BEHIND_TAG,
            Source::Frame | Source::Tagged | Source::Socket | Source::Sent | Source::Device => TAG,
        };
        self.bytes(filter, type_at, 2);
        self.when(R1.below(ETH_P_802_3_MIN), |this| {
            this.bytes(filter, type_at + 2, 2);
            this.asm.unless(R1.is(0xffff), |asm| {
                asm.set(R1, ETH_P_802_2);
                asm.jump(done);
            });
            this.asm.set(R1, ETH_P_802_3);
        });
        self.asm.bind(done);
    }
}
