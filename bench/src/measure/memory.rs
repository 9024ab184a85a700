//! The memory of tcpdump while it captures.

use std::fs;

use anyhow::{Context, Result, ensure};
use fanpcap_testbed::Member;
use serde::Deserialize;

use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::generator::Load;
use crate::libraries::Side;
use crate::outside;
use crate::pause::pause;
use crate::trial::SETTLE;

/// The memory of tcpdump after a flood.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Memory {
    len: usize,
    snaplen: Option<u32>,
}

impl Memory {
    pub(super) fn run(&self, bench: &Bench, side: Side) -> Result<Sample> {
        bench.arranged(side, bench.way, || {
            let member = self.start(bench, side)?;
            pause(SETTLE)?;
            bench.generate(Load::flood(self.len, bench.way, bench.time))?;
            let sample = of_process(member.pid())?;
            member.signal("INT")?;
            member.wait()?;
            Ok(sample)
        })
    }

    /// A tcpdump that writes the packets to a standard output that nothing reads.
    fn start(&self, bench: &Bench, side: Side) -> Result<Member> {
        let snaplen = self.snaplen.map(|bytes| format!("-s{bytes}"));
        let command = format!(
            "exec tcpdump -n -Z root -i {} -w - {} >/dev/null",
            bench.wire.far(),
            snaplen.unwrap_or_default()
        );
        let program = outside::program(bench, side, bench.reader_cpu, "sh", "listening on");
        let member = outside::start(bench, Some(side), program.args(["-c", &command]))?;
        let said = member.said()?;
        // pcap_activate() warns if a handle falls back to another engine.
        ensure!(!said.contains("WARNING"), "{said}");
        Ok(member)
    }
}

fn of_process(pid: u32) -> Result<Sample> {
    let read = |file: &str| {
        let path = format!("/proc/{pid}/{file}");
        fs::read_to_string(&path).with_context(|| format!("reading {path}"))
    };
    let rollup = read("smaps_rollup")?;
    let megabytes = |name| kibibytes(&rollup, name).map(|size| size as f64 * 1024.0 / 1e6);
    let (rss, pss) = (megabytes("Rss:")?, megabytes("Pss:")?);
    let mut maps = Vec::new();
    let descriptors = format!("/proc/{pid}/fdinfo");
    for entry in fs::read_dir(&descriptors).with_context(|| format!("reading {descriptors}"))? {
        // The process may have closed the descriptor.
        maps.push(fs::read_to_string(entry?.path()).unwrap_or_default());
    }
    Ok(Sample::from([
        (Figure::RssMb, rss),
        (Figure::PssMb, pss),
        (Figure::ResidentByShare, rss / pss),
        (Figure::MapsMb, of_maps(&maps) as f64 / 1e6),
    ]))
}

/// The KiB in the line of /proc/PID/smaps_rollup that begins with `name`. The kernel calls the unit
/// kB (proc_pid_smaps(5)).
fn kibibytes(rollup: &str, name: &str) -> Result<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    number.with_context(|| format!("no {name} in {rollup:?}"))
}

/// The bytes of all BPF maps in these files of /proc/PID/fdinfo. A map with several descriptors
/// counts once.
fn of_maps(descriptors: &[String]) -> u64 {
    let field = |text: &str, name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line?.trim().parse().ok()
    };
    let map = |text: &String| Some((field(text, "map_id:")?, field(text, "memlock:")?));
    let mut maps: Vec<(u64, u64)> = descriptors.iter().filter_map(map).collect();
    maps.sort_unstable();
    maps.dedup();
    maps.into_iter().map(|(_, bytes)| bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of /proc/PID/smaps_rollup on Linux 6.18.
    const ROLLUP: &str = "00400000-7ffc [rollup]\nRss:                1764 kB\n\
        Pss:                 304 kB\nPss_Dirty:           168 kB\n";

    #[test]
    fn resident_memory_and_share_are_read() {
        assert_eq!(kibibytes(ROLLUP, "Rss:").unwrap(), 1764);
        assert_eq!(kibibytes(ROLLUP, "Pss:").unwrap(), 304);
        assert!(kibibytes(ROLLUP, "Swap:").is_err());
    }

    #[test]
    fn a_map_with_two_descriptors_counts_once() {
        let map = |id: u32, bytes: u64| {
            format!("pos:\t0\nmap_type:\t2\nmemlock:\t{bytes}\nmap_id:\t{id}\nfrozen:\t0\n")
        };
        let program = "pos:\t0\nprog_type:\t6\nmemlock:\t4096\nprog_id:\t9\n".to_owned();
        let descriptors = [map(7, 1000), map(8, 1000), map(7, 1000), program];
        assert_eq!(of_maps(&descriptors), 2000);
    }
}
