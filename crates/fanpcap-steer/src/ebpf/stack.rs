//! The stack: offsets from the end of the frame. The verifier requires that each byte is written
//! before it is read, by aligned accesses. Without `CAP_PERFMON` a first store costs a barrier,
//! unless a helper has written there before.
//!
//! A register stored at a multiple of eight is spilled, to the verifier, if the verifier knows its
//! bounds. Without `CAP_PERFMON` Linux 6.1 then refuses each store there of less than eight bytes.
//! So a place is written by stores of eight bytes, of constants, or beside multiples of eight.

/// Head of a plain frame: two bytes beyond a multiple of eight, so that IP addresses are aligned.
pub(super) const WINDOW: i16 = -62;
/// Places for what the code looks up in the group's table and among flows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spots {
    /// The key of a row of the table: 4 bytes.
    pub(super) row: i16,
    /// The hash of a flow that is looked up, as a key: 4 bytes.
    pub(super) flow: i16,
    /// Who has a flow, as a value: 8 bytes.
    pub(super) key: i16,
}

/// Those of a group's BPF program. The row's key is within the window, where a helper has written.
/// The flow's replaces the packet's own view, which is not needed any more.
pub(super) const OF_GROUP: Spots = Spots {
    row: -60,
    flow: OUTER,
    key: KEY,
};
/// Those of a BPF program that delivers. Its main function only does that, and has a small frame.
pub(super) const OF_DELIVERY: Spots = Spots {
    row: -4,
    flow: -8,
    key: -16,
};
/// The decision, in a frame that delivers.
pub(super) const DECISION: i16 = -24;
/// The packet's stamp, in a frame that delivers.
pub(super) const STAMP: i16 = -32;
/// The first row of the class's part of the table, in a frame that delivers: 8 bytes. Between here
/// and the stamp is the place of [`super::Delivery`].
pub(super) const PART: i16 = -56;
/// A number of ranks, or a slot, in a frame that delivers: 8 bytes, the lowest of that frame.
pub(super) const RANKS: i16 = -64;
/// The row of [`PART`] and the hash of a flow, as a key, in a frame that delivers: 8 bytes. A
/// packet of a flow needs no [`RANKS`].
pub(super) const CLASS_AND_FLOW: i16 = RANKS;
/// The packet's own view: its lower half, and 8 bytes above it the upper half. It replaces the
/// window. The verifier tracks no value at an offset of 4 beyond a multiple of eight.
pub(super) const OUTER: i16 = -52;
/// The carried packet's view, or 0; laid out as [`OUTER`].
pub(super) const CARRIED: i16 = -36;
/// The walk's own view and headers: the walk is called deep and must use little stack.
pub(super) const WALKED: i16 = -20;
/// 64 bytes for an IPv4 header with its options.
pub(super) const SUMMED: i16 = -64;
/// Scratch memory of the walk.
pub(super) const WALKED_SCRATCH: i16 = -64;
/// 8 bytes of [`super::emitter::Routine::Word`].
pub(super) const WORD: i16 = -8;
/// The packet's own ports.
pub(super) const PORTS: i16 = -20;
/// The packet's state.
pub(super) const STATE: i16 = -4;
/// The packet's class, what the host gets, and whether the packet is marked, where a BPF program
/// delivers. Beside a multiple of eight, as [`STATE`] and [`MARK`].
pub(super) const CHOICE: i16 = -12;
/// The packet's new mark, where a BPF program delivers. Such code has no window.
pub(super) const MARK: i16 = -60;
/// 40 bytes for headers.
pub(super) const SCRATCH: i16 = -104;
/// The VLAN id of a flow; shares its place with a map's key, which is not needed at the same time.
pub(super) const VLAN: i16 = -152;
/// The key of a map, up to 24 bytes.
pub(super) const KEY: i16 = -168;
/// The packet's own IP header, above the 24 bytes of a key.
pub(super) const HEADER: i16 = -144;
/// In a pcap filter's BPF function: 4 bytes for a loaded number.
pub(super) const LOADED: i16 = -136;
/// In a filter at XDP: 8 bytes for a number that lies on both sides of a tag.
pub(super) const TWO_PARTS: i16 = -144;
/// Saved outcomes and states of alternatives, 16 bytes each, downwards.
pub(super) const SAVED: i16 = -176;
/// What the delivery keeps in r9, where nothing is saved.
pub(super) const KEPT: i16 = SAVED;
/// Maximum number of these.
pub(super) const SAVED_MAX: i16 = 8;
/// The same where the code is called by a function that delivers.
pub(super) const SAVED_MAX_CALLED: i16 = 5;

// The stack frames of nested calls share 512 bytes (MAX_BPF_STACK).
const _: () = {
    /// Size of a stack frame whose lowest byte is `lowest`; newer kernels round up less.
    const fn frame(lowest: i16) -> i16 {
        (-lowest + 31) / 32 * 32
    }
    const fn deciding(levels: i16) -> i16 {
        frame(SAVED - 16 * (levels - 1) - 8)
    }
    let main = deciding(SAVED_MAX);
    assert!(frame(RANKS) + deciding(SAVED_MAX_CALLED) <= main);
    // With a delivery's frame of 32 bytes, a filter may follow.
    assert!(frame(KEPT) + 32 < 256);
    let (walk, word) = (frame(WALKED_SCRATCH), frame(WORD));
    let quoted = frame(WALKED_SCRATCH);
    let checksum = frame(SUMMED);
    let hash = frame(VLAN);
    let fragments = frame(SCRATCH);
    let pcap = frame(LOADED);
    assert!(main + quoted + walk + word <= 512);
    assert!(main + quoted + walk + checksum <= 512);
    assert!(main + hash + word <= 512);
    assert!(main + fragments + word <= 512);
    assert!(main + pcap <= 512);
};
