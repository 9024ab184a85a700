//! The layout of the stack, as offsets from the end of the stack frame. The verifier requires that
//! each byte is written before it is read, and that accesses are aligned. Without `CAP_PERFMON` the
//! verifier adds a barrier to the first store to a place, unless a helper has written to the place
//! before.
//!
//! If a register whose bounds the verifier knows is stored at a multiple of eight, the verifier
//! counts it as a spilled register. Without `CAP_PERFMON` Linux 6.1 then refuses each later store
//! of less than eight bytes to that place. So each store is of eight bytes, or of a constant, or
//! goes to an offset that is not a multiple of eight.

/// The window: the first bytes of a plain frame. They begin two bytes beyond a multiple of eight,
/// so that IP addresses are aligned.
pub(super) const WINDOW: i16 = -62;
/// Places for look-ups in the group's table and in the map of flows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spots {
    /// The key (index) of an entry in the group's table: 4 bytes.
    pub(super) row: i16,
    /// The hash of a flow, as a key: 4 bytes.
    pub(super) flow: i16,
    /// The member of a flow, as a value: 8 bytes.
    pub(super) key: i16,
}

/// Places of a group's BPF program. `row` is within the window, where a helper has already written,
/// so that the verifier adds no barrier to the store. `flow` replaces the packet's view, which the
/// code no longer needs.
pub(super) const OF_GROUP: Spots = Spots {
    row: -60,
    flow: OUTER,
    key: KEY,
};
/// Places of a BPF program that delivers. Its main function does little besides delivering, and has
/// a small stack frame.
pub(super) const OF_DELIVERY: Spots = Spots {
    row: -4,
    flow: -8,
    key: -16,
};
/// The decision, in a delivering function's stack frame.
pub(super) const DECISION: i16 = -24;
/// The packet's stamp, in a delivering function's stack frame.
pub(super) const STAMP: i16 = -32;
/// The index of the table's first entry for the packet's class, in a delivering function's stack
/// frame: 8 bytes. The bytes between this place and the stamp belong to [`super::Delivery`].
pub(super) const PART: i16 = -56;
/// A number of ranks, or a slot, in a delivering function's stack frame: the 8 bytes at its lowest
/// address.
pub(super) const RANKS: i16 = -64;
/// A flow's key, 8 bytes in a delivering function's stack frame: the index that is stored at
/// [`PART`], and the flow's hash. The code for a packet of a flow does not need [`RANKS`].
pub(super) const CLASS_AND_FLOW: i16 = RANKS;
/// The packet's view: the lower half at this offset, the upper half 8 bytes above. The view
/// replaces the window. Both offsets are 4 beyond a multiple of eight, where the verifier tracks no
/// value.
pub(super) const OUTER: i16 = -52;
/// The carried packet's view, laid out as [`OUTER`]; 0 if no packet is carried.
pub(super) const CARRIED: i16 = -36;
/// The view and headers in the stack frame of the walk's own BPF function. That function is called
/// at a great call depth, so it must use little stack.
pub(super) const WALKED: i16 = -20;
/// In the BPF function that checks an IPv4 checksum: 64 bytes for the header with its options.
pub(super) const SUMMED: i16 = -64;
/// Scratch memory of the walk.
pub(super) const WALKED_SCRATCH: i16 = -64;
/// 8 bytes for [`super::emitter::Routine::Word`].
pub(super) const WORD: i16 = -8;
/// The packet's ports.
pub(super) const PORTS: i16 = -20;
/// The packet's state.
pub(super) const STATE: i16 = -4;
/// In a BPF program that delivers: the packet's class, the decision about the host, and whether the
/// packet is marked. Like [`STATE`] and [`MARK`], this offset is not a multiple of eight.
pub(super) const CHOICE: i16 = -12;
/// The packet's new mark, in a BPF program that delivers. Such a BPF program has no window.
pub(super) const MARK: i16 = -60;
/// 40 bytes for headers.
pub(super) const SCRATCH: i16 = -104;
/// The VLAN id of a flow. It shares its place with a map's key, because the code never needs both
/// at the same time.
pub(super) const VLAN: i16 = -152;
/// The key of a map, up to 24 bytes.
pub(super) const KEY: i16 = -168;
/// The packet's IP header, above the 24 bytes of a key.
pub(super) const HEADER: i16 = -144;
/// In a pcap filter's BPF function: 4 bytes for a loaded number.
pub(super) const LOADED: i16 = -136;
/// In a filter at XDP: 8 bytes for a number that has bytes on both sides of a tag.
pub(super) const TWO_PARTS: i16 = -144;
/// Saved outcomes and states of alternatives, 16 bytes each. Each further place is 16 bytes lower.
pub(super) const SAVED: i16 = -176;
/// The place for a delivering BPF program's r9 while its main function decides. Such code saves no
/// alternatives.
pub(super) const KEPT: i16 = SAVED;
/// Maximum number of saved outcomes.
pub(super) const SAVED_MAX: i16 = 8;
/// Maximum number of saved outcomes in code that a delivering function calls.
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
    // With a delivery's stack frame of 32 bytes on top, the kernel still allows a tail call to a
    // filter.
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
