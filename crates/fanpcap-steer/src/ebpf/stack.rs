//! The stack, counted from its end. The verifier wants each byte written before it is read, and by
//! aligned accesses; a first store costs a barrier without `CAP_PERFMON`, unless a helper has
//! written there before.

/// Where a plain frame's head is: two bytes behind a multiple of eight, so that its addresses are
/// aligned.
pub(super) const WINDOW: i16 = -62;
/// The packet's own view, where the window was: its lower half, and 8 bytes on the upper one. At 4
/// behind a multiple of eight the verifier does not keep track of values.
pub(super) const OUTER: i16 = -52;
/// The view of what it carries, or 0; the same.
pub(super) const CARRIED: i16 = -36;
/// The walk's own view, and its headers: it is called deep, and its stack is short.
pub(super) const WALKED: i16 = -20;
/// See above.
pub(super) const WALKED_SCRATCH: i16 = -64;
/// Of [`super::emitter::Routine::Word`], 8 bytes.
pub(super) const WORD: i16 = -8;
/// The packet's own ports.
pub(super) const PORTS: i16 = -20;
/// The program's state.
pub(super) const STATE: i16 = -4;
/// 40 bytes for headers.
pub(super) const SCRATCH: i16 = -104;
/// A VLAN id, of a flow; where a key would be, which is not needed at the same time.
pub(super) const VLAN: i16 = -148;
/// The key of a map, up to 24 bytes.
pub(super) const KEY: i16 = -168;
/// The packet's own IP header, behind the 24 bytes that a key has here.
pub(super) const HEADER: i16 = -144;
/// In a pcap filter's function: 4 bytes for what is loaded.
pub(super) const LOADED: i16 = -136;
/// What an alternative has to put back begins here, 16 bytes each, downwards.
pub(super) const SAVED: i16 = -176;
/// The most of these.
pub(super) const SAVED_MAX: i16 = 8;

// All that are called in each other have 512 bytes (MAX_BPF_STACK).
const _: () = {
    /// What a function takes of the stack whose lowest byte is here; newer kernels round by less.
    const fn frame(lowest: i16) -> i16 {
        (-lowest + 31) / 32 * 32
    }
    let main = frame(SAVED - 16 * (SAVED_MAX - 1) - 8);
    let (walk, word) = (frame(WALKED_SCRATCH), frame(WORD));
    let quoted = frame(WALKED_SCRATCH);
    let hash = frame(VLAN);
    let fragments = frame(SCRATCH);
    let pcap = frame(LOADED);
    assert!(main + quoted + walk + word <= 512);
    assert!(main + hash + word <= 512);
    assert!(main + fragments + word <= 512);
    assert!(main + pcap <= 512);
};
