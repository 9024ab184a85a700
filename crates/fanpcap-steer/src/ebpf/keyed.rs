//! The interface of a BPF program at XDP that computes a key of each packet. The key is the hash of
//! a tree, or [`Keyed::key`] makes the key from the headers that the walk has found.

use super::view::{IPV4, IPV6};
use crate::ir::Filter;
use fanpcap_bpf::MapSpec;
use fanpcap_bpf::assembler::*;

/// Emits the parts of a BPF program that computes a key of each packet.
///
/// All parts are code of the main function. The parts must keep r6, which holds the context. They
/// may use the whole stack. [`Keyed::leave`], the last part, may emit BPF functions behind its own
/// code.
pub trait Keyed {
    /// The maps that the parts use. A map's index in this list is its index for [`Assembler::map`].
    /// The names must differ from those of this crate's maps.
    fn maps(&self) -> Vec<MapSpec>;

    /// Runs first for each packet. The code continues after its last instruction, jumps to `keyed`
    /// with a key in r8, or exits.
    fn arrive(&self, asm: &mut Assembler, keyed: Label);

    /// Puts the key into r8. Does not run if a tree computes the key.
    ///
    /// For an IP packet, the registers have these values at the start:
    /// - r7: the upper protocol, and the version as [`KEYED_IPV4`] or [`KEYED_IPV6`];
    /// - r8: the offset of the IP header;
    /// - r9: the offset of the transport header, or 0 if there is no transport header.
    ///
    /// If there is no IP packet, r7 and r9 are 0, and r8 has the offset of the Ethernet type behind
    /// all tags. The code continues after its last instruction, or jumps to `keyed`.
    fn key(&self, asm: &mut Assembler, keyed: Label);

    /// Ends the BPF program for a packet with the key in the lower half of r8. `filter` is the BPF
    /// function of [`Keyed::filter`]: its r1 is the context, and it returns 0 for a packet that the
    /// filter rejects.
    fn leave(&self, asm: &mut Assembler, filter: Option<Label>);

    /// A pcap filter that [`Keyed::leave`] calls.
    fn filter(&self) -> Option<&Filter> {
        None
    }
}

/// The bit in r7 for [`Keyed::key`] that says that the packet is IPv4.
pub const KEYED_IPV4: i32 = IPV4;
/// The bit in r7 for [`Keyed::key`] that says that the packet is IPv6.
pub const KEYED_IPV6: i32 = IPV6;
