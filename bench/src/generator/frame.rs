//! The frames of a flood, which are 4096 flows of one length, and probes, which carry the time.

use anyhow::{Context, Result};
use fanpcap_gen::{Description, Lengths, Pool};
use fanpcap_linux::wait::clock;

/// The shortest length that holds the headers and a probe's mark.
pub(crate) const SHORTEST: usize = 60;
/// Offset of the payload.
const PAYLOAD: usize = 42;

/// Number of flows in a round of frames.
pub(crate) const FLOWS: u32 = 4096;

/// Mark by which the reader recognises a probe. The time follows the mark.
const MARK: &[u8; 8] = b"FANPROBE";

/// Frames of `len` bytes without the check sequence: UDP over IPv4 to an unused address, as on a
/// tap.
pub(crate) fn pool(len: usize) -> Result<Pool> {
    let description = Description {
        flows: FLOWS,
        lengths: Lengths::Fixed(u16::try_from(len)?),
        stamp: false,
        ..Description::default()
    };
    description
        .pool()
        .with_context(|| format!("frames of {len} bytes"))
}

/// A frame of the shortest length.
pub(crate) fn single() -> Result<Vec<u8>> {
    Ok(pool(SHORTEST)?.frame(0))
}

/// Turns a frame into a probe: writes the mark and the present time.
pub(crate) fn stamp(frame: &mut [u8]) {
    let now = clock::monotonic_ns().to_ne_bytes();
    frame[PAYLOAD..PAYLOAD + 8].copy_from_slice(MARK);
    frame[PAYLOAD + 8..PAYLOAD + 16].copy_from_slice(&now);
}
