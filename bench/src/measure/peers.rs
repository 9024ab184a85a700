//! Our library, the system's, and other capture software on Linux, side by side.

mod testpmd;

use std::time::Duration;

use anyhow::{Result, ensure};
use fanpcap_testbed::Member;
use fanpcap_testbed::member::Ended;
use serde::Deserialize;

use crate::bench::Bench;
use crate::figure::Sample;
use crate::libraries::Side;
use crate::outside::{self, Manner, number_before};
use crate::reader::{self, Settings, Work};
use crate::refusal::{Refusal, Tally};
use crate::trial::GRACE;
use crate::verdict::Verdict;

/// Time for tcpdump to read the rest of its ring. tcpdump sets a timeout of a second, and the
/// kernel hands over a partly filled block within two seconds.
const TCPDUMP_GRACE: Duration = Duration::from_millis(2200);

/// The measure of all peers, at one frame length.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Peers {
    len: usize,
    snaplen: Option<u32>,
}

impl Peers {
    pub(super) fn run(&self, bench: &Bench, key: &str) -> Result<Result<Sample, Refusal>> {
        match key {
            "tcpdump" => self.tcpdump(bench, Side::System),
            "tcpdump_ours" => self.tcpdump(bench, Side::Ours),
            "tcpdump_steal" => self.tcpdump(bench, Side::of("steal")),
            "netsniff" => self.netsniff(bench),
            "dpdk_packet" => self.testpmd(bench, testpmd::AF_PACKET),
            "dpdk_xdp" => without_program(bench, || self.testpmd(bench, testpmd::AF_XDP)),
            _ => self.reader(bench, Side::of(key)),
        }
    }

    fn reader(&self, bench: &Bench, side: Side) -> Result<Result<Sample, Refusal>> {
        let settings = Settings {
            snaplen: self.snaplen,
            ..Settings::default()
        };
        let tally = |ended: &Ended, _| Ok(reader::told(ended, side, bench.libraries())?.tally());
        bench.arranged(side, bench.way, || {
            let member = bench.read(side, settings, Work::Count)?;
            outside::flood(bench, self.len, member, waits("TERM", GRACE), tally)
        })
    }

    fn tcpdump(&self, bench: &Bench, side: Side) -> Result<Result<Sample, Refusal>> {
        let snaplen = self.snaplen.map(|bytes| format!("-s{bytes}"));
        let program = outside::program(bench, side, bench.reader_cpu, "tcpdump", "listening on")
            .args([
                "-n",
                "-Z",
                "root",
                "-i",
                bench.wire.far(),
                "-w",
                "/dev/null",
            ])
            .args(snaplen);
        let tally = |ended: &Ended, _| {
            Ok(Tally {
                received: number_before(&ended.said, "packets received by filter")?,
                dropped: number_before(&ended.said, "packets dropped by kernel")?,
                delivered: number_before(&ended.said, "packets captured")?,
            })
        };
        bench.arranged(side, bench.way, || {
            let member = outside::start(bench, Some(side), program)?;
            let said = member.said()?;
            // pcap_activate() warns if a handle falls back to another engine.
            ensure!(!said.contains("WARNING"), "{said}");
            outside::flood(bench, self.len, member, waits("INT", TCPDUMP_GRACE), tally)
        })
    }

    /// netsniff-ng has no snapshot length. The option `--no-sock-mem` keeps it from changing the
    /// machine's limits of socket memory.
    fn netsniff(&self, bench: &Bench) -> Result<Result<Sample, Refusal>> {
        let cpu = bench.reader_cpu;
        let program = outside::program(bench, Side::System, cpu, "netsniff-ng", "Running!")
            .args(["--in", bench.wire.far(), "--out", "/dev/null"])
            .args(["--silent", "--no-sock-mem"]);
        let member = outside::start(bench, None, program)?;
        outside::flood(bench, self.len, member, waits("INT", GRACE), |ended, _| {
            Ok(Tally {
                received: number_before(&ended.said, "packets incoming")?,
                dropped: number_before(&ended.said, "packets failed filter")?,
                delivered: number_before(&ended.said, "packets passed filter")?,
            })
        })
    }

    /// testpmd's worker thread polls, so it uses its whole core while frames are sent. The main
    /// thread is idle during this time.
    fn testpmd(&self, bench: &Bench, device: [&str; 2]) -> Result<Result<Sample, Refusal>> {
        let member = testpmd::start(bench, device)?;
        let polls = Manner {
            polls: true,
            ..waits("INT", GRACE)
        };
        outside::flood(bench, self.len, member, polls, testpmd::tally)
    }
}

/// An application that sleeps until packets arrive.
const fn waits(signal: &'static str, grace: Duration) -> Manner {
    Manner {
        signal,
        grace,
        polls: false,
    }
}

/// Why testpmd can't be used on net_af_packet; `None` if it can.
pub(super) fn no_testpmd_on_packet(bench: &Bench) -> Option<String> {
    refusal(testpmd::start(bench, testpmd::AF_PACKET))
}

/// Why testpmd can't be used on net_af_xdp; `None` if it can.
pub(super) fn no_testpmd_on_xdp(bench: &Bench) -> Result<Option<String>> {
    without_program(bench, || {
        Ok(refusal(testpmd::start(bench, testpmd::AF_XDP)))
    })
}

/// Why an application can't be used, by the result of its start; `None` if it can.
fn refusal(started: Result<Member>) -> Option<String> {
    // The application removes its XDP program only when it ends properly.
    let ended = started.and_then(|member| {
        member.signal("INT")?;
        member.wait()
    });
    let error = format!("{:#}", ended.err()?);
    let cause = error.lines().rev().find(|line| line.contains("rror"));
    Some(format!(
        "does not start here: {}",
        cause.unwrap_or(&error).trim()
    ))
}

/// Runs `work` without the bench's XDP program, for a peer that loads its own.
fn without_program<T>(bench: &Bench, work: impl FnOnce() -> Result<T>) -> Result<T> {
    bench.wire.take_no_frames();
    let done = work();
    bench.wire.clear()?;
    bench.wire.take_frames(Verdict::Pass)?;
    done
}
