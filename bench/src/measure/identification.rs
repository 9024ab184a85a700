//! A measure of how evenly the identification of IPv4 is spread over packets. Also measures how
//! evenly nodes share packets by the identification. The histogram has the shape of DiCAP's Fig. 7.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use fanpcap_gen::{Description, Records};
use fanpcap_select::{Key, Keys, Selection, bob};
use fanpcap_wire::{Frame, Header, Layers};

use crate::figure::{Figure, Sample};

/// The variable that names a directory of captures, whose packets are used instead of generated
/// ones.
const CAPTURES: &str = "FANPCAP_CAPTURES";
const NODES: usize = 8;
/// Parts of the histogram, of 1024 identifications each.
const PARTS: usize = 64;
/// An arbitrary value for a cluster's secret.
const INITIAL: u32 = 0x0123_4567;

/// The directory of captures, if the variable is set.
pub(super) fn captures() -> Option<OsString> {
    env::var_os(CAPTURES)
}

/// The figures of one histogram.
pub(super) fn run(key: &str) -> Result<Sample> {
    let frames = match captures() {
        Some(dir) => captured(Path::new(&dir))?,
        None => generated()?,
    };
    let ids: Vec<Option<u16>> = frames.iter().map(|frame| identification(frame)).collect();
    let imbalance = match key {
        "paper" => by_paper(&ids),
        _ => by_packet(&frames),
    };
    Ok(Sample::from([
        (Figure::Sent, frames.len() as f64),
        (Figure::OutsideUniform, outside(&ids)),
        (Figure::Imbalance, imbalance),
    ]))
}

/// Frames of the generator's default mix.
fn generated() -> Result<Vec<Vec<u8>>> {
    let pool = Description {
        flows: 1 << 16,
        ..Description::default()
    };
    let pool = pool.pool()?;
    Ok((0..pool.len() as u64)
        .map(|number| pool.frame(number))
        .collect())
}

/// The Ethernet frames of all captures in a directory and below.
fn captured(dir: &Path) -> Result<Vec<Vec<u8>>> {
    let mut frames = Vec::new();
    for file in files(dir)? {
        // Files that are not of Ethernet are ignored. In a damaged file, the packets after the
        // damage are ignored.
        let records = Records::open(&file).into_iter().flatten();
        frames.extend(records.map_while(Result::ok).map(|record| record.bytes));
    }
    ensure!(!frames.is_empty(), "no captures in {}", dir.display());
    Ok(frames)
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("{CAPTURES}: {}", dir.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else if path
            .extension()
            .is_some_and(|name| name == "pcap" || name == "pcapng")
        {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn frame(bytes: &[u8]) -> Frame<'_> {
    Frame { bytes, tag: None }
}

/// The identification of an IPv4 frame; `None` for other frames.
fn identification(bytes: &[u8]) -> Option<u16> {
    match Layers::of(&frame(bytes)).ip()?.header {
        Header::V4(header) => Some(header.id()),
        Header::V6(_) => None,
    }
}

/// The sum, over all parts of the histogram, of the packets beyond the average of a part, in
/// percent of all IPv4 packets.
fn outside(ids: &[Option<u16>]) -> f64 {
    let mut parts = [0_u32; PARTS];
    for id in ids.iter().flatten() {
        parts[(usize::from(*id) * PARTS) >> u16::BITS] += 1;
    }
    let all = f64::from(parts.iter().sum::<u32>());
    let mean = all / PARTS as f64;
    let over = parts
        .iter()
        .map(|count| (f64::from(*count) - mean).max(0.0));
    100.0 * over.sum::<f64>() / all
}

/// How far the busiest node is above its share, in percent.
fn imbalance(nodes: impl Iterator<Item = usize>) -> f64 {
    let mut counts = [0_u32; NODES];
    for node in nodes {
        counts[node % NODES] += 1;
    }
    let mean = f64::from(counts.iter().sum::<u32>()) / NODES as f64;
    let busiest = counts.iter().copied().max().unwrap_or(0);
    100.0 * (f64::from(busiest) / mean - 1.0)
}

/// The imbalance with the hash of DiCAP's paper. Packets without an identification are hashed as
/// packets with identification 0.
fn by_paper(ids: &[Option<u16>]) -> f64 {
    let hash = |id: &Option<u16>| bob::hash(&id.unwrap_or(0).to_be_bytes(), INITIAL);
    imbalance(ids.iter().map(|id| hash(id) as usize))
}

fn by_packet(frames: &[Vec<u8>]) -> f64 {
    let mut keys = Keys::new(Selection {
        key: Key::Packet,
        initial: INITIAL,
    });
    // The frames are a millisecond apart.
    let times = (0..).step_by(1_000_000);
    let packets = frames.iter().zip(times);
    imbalance(packets.map(|(bytes, now)| keys.number(&frame(bytes), now).bucket))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_of_one_identification_is_outside() {
        let even: Vec<Option<u16>> = (0..=u16::MAX).map(Some).collect();
        assert_eq!(outside(&even), 0.0);
        let none = vec![None; 5];
        let half: Vec<_> = even.iter().map(|id| id.map(|id| id / 2)).collect();
        assert_eq!(outside(&[half, none].concat()), 50.0);
    }

    #[test]
    fn the_busiest_node_is_told() {
        assert_eq!(imbalance(0..80), 0.0);
        assert_eq!(imbalance((0..8).map(|_| 3)), 700.0);
    }
}
