//! What a BPF program at XDP does that goes by a packet's key: a hash that a tree makes, or one of
//! its own, from headers that the walk has found.

use super::view::{IPV4, IPV6};
use fanpcap_bpf::MapSpec;
use fanpcap_bpf::assembler::{Assembler, Label};

/// Emits the parts of a BPF program that goes by a packet's key.
///
/// All parts are code of the main function. They find the context in r6 and keep it. The stack is
/// theirs.
pub trait Keyed {
    /// The maps that the parts use. A map's index in this list is its index for [`Assembler::map`].
    /// The names are not those of this crate's maps.
    fn maps(&self) -> Vec<MapSpec>;

    /// Begins with a packet. Goes on behind its last instruction, jumps to `keyed` with a key in
    /// r8, or exits.
    fn arrive(&self, asm: &mut Assembler, keyed: Label);

    /// Puts the key into r8, where no tree does. Finds in r7 the IP packet's upper protocol and its
    /// version, [`KEYED_IPV4`] or [`KEYED_IPV6`]; in r8 the offset of its header; in r9 that of the
    /// transport header, or 0 if there is none. Without an IP packet finds 0 in r7 and r9, and in
    /// r8 the offset of the type behind all tags. Goes on behind its last instruction, or jumps to
    /// `keyed`.
    fn key(&self, asm: &mut Assembler, keyed: Label);

    /// Ends the BPF program for a packet with the key in the lower half of r8.
    fn leave(&self, asm: &mut Assembler);
}

/// In r7 of [`Keyed::key`]: an IPv4 packet.
pub const KEYED_IPV4: i32 = IPV4;
/// In r7 of [`Keyed::key`]: an IPv6 packet.
pub const KEYED_IPV6: i32 = IPV6;
