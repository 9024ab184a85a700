//! Merges captures as `fanpcap run --merge` does, for other programs.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::run::merge;

/// The result of a merge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Packets of each source.
    pub read: Vec<u64>,
    /// Packets written.
    pub written: u64,
    /// Packets that were left out.
    pub left_out: u64,
    /// Of `written`: older than a packet written before.
    pub late: u64,
    /// Sources whose last packet is incomplete.
    pub cut: Vec<PathBuf>,
}

/// Whether a packet is written: the number of its source, its timestamp in nanoseconds since 1970,
/// its bytes on the wire, and what was captured.
pub type Keep<'a> = dyn FnMut(usize, u64, u32, &[u8]) -> bool + 'a;

/// Merges the packets that `keep` says by time into `to`: pcapng if it ends in `.pcapng`, else
/// pcap; `-` is standard output.
///
/// # Errors
///
/// A source is no capture, or is damaged before its end, or `to` can't be written.
pub fn merge(sources: &[PathBuf], to: &Path, keep: &mut Keep<'_>) -> Result<Merged> {
    let merged = merge::merge_kept(sources, to, keep)?;
    let cut = sources
        .iter()
        .zip(&merged.parts)
        .filter(|(_, part)| part.cut);
    Ok(Merged {
        read: merged.parts.iter().map(|part| part.packets).collect(),
        written: merged.packets,
        left_out: merged.left_out,
        late: merged.late,
        cut: cut.map(|(path, _)| path.clone()).collect(),
    })
}
