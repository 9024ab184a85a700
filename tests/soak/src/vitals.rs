//! Memory and descriptors of a process over time, and whether they grow.

use std::fmt;
use std::fs;

use anyhow::{Context, Result, ensure};

/// The resources of a process at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vitals {
    /// Resident memory in KiB, including rings.
    pub(crate) rss: u64,
    /// Resident memory that belongs to no file, in KiB: the heap and stacks.
    pub(crate) anonymous: u64,
    pub(crate) descriptors: u64,
    pub(crate) mappings: u64,
}

impl fmt::Display for Vitals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rss,
            anonymous,
            descriptors,
            mappings,
        } = self;
        write!(
            f,
            "{rss} KiB ({anonymous} anonymous), {descriptors} descriptors, {mappings} mappings"
        )
    }
}

impl Vitals {
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let kib = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name));
            let value = value.and_then(|value| value.trim().strip_suffix(" kB"));
            anyhow::Ok(value.context("a line of /proc/PID/status")?.parse()?)
        };
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        Ok(Self {
            rss: kib("VmRSS:")?,
            anonymous: kib("RssAnon:")?,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64,
            mappings: maps.lines().count() as u64,
        })
    }
}

/// The allowed growth from the minimum of the first quarter to the minimum of the last quarter. In
/// each reading, threads that open handles may have two more handles open: a handle on the XDP
/// engine has up to 24 descriptors and a pool of 4 MiB. An allocator may keep one more arena. What
/// leaks with each handle grows by hundreds within seconds.
const MORE_DESCRIPTORS: u64 = 48;
const MORE_MAPPINGS: u64 = 24;
const MORE_RSS_KIB: u64 = 8192;
const MORE_ANONYMOUS_KIB: u64 = 1024;

/// The number of first readings that count as warm-up: the readings of one minute. If the soak is
/// short, a fifth of all readings are warm-up instead.
const WARM_UP: usize = 300;

/// Compares the minimum of the first and of the last quarter after the warm-up. Leaked memory is
/// never freed, so a leak raises the minimum. Handles that are open only for a moment hardly affect
/// the minimum.
pub(crate) fn ensure_flat(name: &str, looks: &[Vitals]) -> Result<String> {
    let looks = &looks[(looks.len() / 5).min(WARM_UP)..];
    let quarter = (looks.len() / 4).max(1);
    ensure!(looks.len() > quarter, "{name}: too few looks");
    let (first, last) = (&looks[..quarter], &looks[looks.len() - quarter..]);
    let mut told = Vec::new();
    let kinds: [(&str, Kind, u64); 4] = [
        ("KiB", |look| look.rss, MORE_RSS_KIB),
        ("anonymous KiB", |look| look.anonymous, MORE_ANONYMOUS_KIB),
        ("descriptors", |look| look.descriptors, MORE_DESCRIPTORS),
        ("mappings", |look| look.mappings, MORE_MAPPINGS),
    ];
    for (kind, of, more) in kinds {
        let (before, after) = (least(first, of), least(last, of));
        ensure!(
            after <= before + more,
            "{name}: {kind} grew from {before} to {after}"
        );
        told.push(format!("{kind} {before} -> {after}"));
    }
    Ok(format!("{name}: {}", told.join(", ")))
}

/// A function that returns one of the numbers.
type Kind = fn(&Vitals) -> u64;

fn least(looks: &[Vitals], of: Kind) -> u64 {
    looks.iter().map(of).min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(rss: impl Fn(u64) -> u64) -> Vec<Vitals> {
        let look = |second| Vitals {
            rss: rss(second),
            anonymous: 900,
            descriptors: 9,
            mappings: 90,
        };
        (0..200).map(look).collect()
    }

    #[test]
    fn growth_is_seen_and_noise_is_not() {
        assert!(ensure_flat("steady", &looks(|second| 8000 + second % 7 * 100)).is_ok());
        assert!(
            ensure_flat(
                "warm",
                &looks(|second| if second < 40 { 100 } else { 9000 })
            )
            .is_ok()
        );
        assert!(ensure_flat("leak", &looks(|second| 8000 + 100 * second)).is_err());
    }
}
