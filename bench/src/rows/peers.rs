//! Our library, the system's, and other capture software on Linux, side by side.

mod testpmd;

use std::time::Duration;

use anyhow::{Result, ensure};
use fanpcap_testbed::Member;
use fanpcap_testbed::member::Ended;

use super::unread::no_live_frames;
use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::generator::Way;
use crate::generator::frame::SHORTEST;
use crate::libraries::Side;
use crate::measure::{Column, Measure};
use crate::outside::{self, Manner, Tally, number_before};
use crate::reader::{self, Settings, Work};
use crate::refusal::Refusal;
use crate::row::{Goal, Must, Row};
use crate::trial::GRACE;
use crate::verdict::Verdict;

/// tcpdump sets a timeout of a second, and the kernel hands over a partly filled block within two.
const TCPDUMP_GRACE: Duration = Duration::from_millis(2200);

/// All of them, at one frame length.
#[derive(Debug)]
struct Peers {
    len: usize,
    snaplen: Option<u32>,
    /// Text at the end of the measure's name.
    what: &'static str,
    columns: &'static [Column],
}

const SYSTEM: Column = Column::new("system", "libpcap");
const NETSNIFF: Column = Column::new("netsniff", "netsniff-ng");
const DPDK_XDP: Column = Column::new("dpdk_xdp", "testpmd, net_af_xdp");

const COLUMNS: [Column; 7] = [
    Column::new("ours", "fanpcap"),
    SYSTEM,
    Column::new("tcpdump", "tcpdump on libpcap"),
    Column::new("tcpdump_ours", "tcpdump on fanpcap"),
    NETSNIFF,
    Column::new("dpdk_packet", "testpmd, net_af_packet"),
    DPDK_XDP,
];
/// Our XDP engine; the host keeps nothing.
const XDP_COLUMNS: [Column; 5] = [
    Column::new("steal", "fanpcap, xdp"),
    SYSTEM,
    Column::new("tcpdump_steal", "tcpdump on fanpcap, xdp"),
    NETSNIFF,
    DPDK_XDP,
];

impl Measure for Peers {
    fn name(&self) -> String {
        let snaplen = self.snaplen.map(|bytes| format!(", snaplen {bytes}"));
        let snaplen = snaplen.unwrap_or_default();
        format!("{} bytes{snaplen}, {}", self.len, self.what)
    }

    fn columns(&self) -> &[Column] {
        self.columns
    }

    fn absent(&self, bench: &Bench, column: &Column) -> Result<Option<String>> {
        let missing = match column.key {
            "steal" => no_live_frames(bench),
            "tcpdump_steal" if bench.way == Way::Sendmmsg => no_live_frames(bench),
            "tcpdump" | "tcpdump_ours" | "tcpdump_steal" => outside::missing("tcpdump", "tcpdump"),
            "netsniff" => outside::missing("netsniff-ng", "netsniff-ng"),
            "dpdk_xdp" if bench.way == Way::Sendmmsg => no_live_frames(bench),
            "dpdk_packet" | "dpdk_xdp" => outside::missing("dpdk-testpmd", "dpdk-dev"),
            _ => None,
        };
        let reason = match (missing, column.key) {
            (None, "dpdk_packet") => refusal(testpmd::start(bench, testpmd::AF_PACKET)),
            (None, "dpdk_xdp") => without_program(bench, || {
                Ok(refusal(testpmd::start(bench, testpmd::AF_XDP)))
            })?,
            (missing, _) => missing,
        };
        Ok(reason)
    }

    fn run(&self, bench: &Bench, column: &Column) -> Result<Result<Sample, Refusal>> {
        match column.key {
            "tcpdump" => self.tcpdump(bench, Side::System),
            "tcpdump_ours" => self.tcpdump(bench, Side::Ours),
            "tcpdump_steal" => self.tcpdump(bench, Side::of("steal")),
            "netsniff" => self.netsniff(bench),
            "dpdk_packet" => self.testpmd(bench, testpmd::AF_PACKET),
            "dpdk_xdp" => without_program(bench, || self.testpmd(bench, testpmd::AF_XDP)),
            _ => self.reader(bench, Side::of(column.key)),
        }
    }

    /// Other projects' software may not work here; the libraries must.
    fn dispensable(&self, column: &Column) -> bool {
        !matches!(column.key, "ours" | "steal" | "system")
    }

    fn shown(&self) -> &[Figure] {
        &[
            Figure::CapturedPps,
            Figure::CapturedShare,
            Figure::ReaderNs,
            Figure::GeneratorNs,
        ]
    }
}

impl Peers {
    fn reader(&self, bench: &Bench, side: Side) -> Result<Result<Sample, Refusal>> {
        let settings = Settings {
            snaplen: self.snaplen,
            ..Settings::DEFAULT
        };
        let tally = |ended: &Ended, _| {
            let told = reader::told(ended, side, bench.library())?;
            Ok(Tally {
                received: told.received,
                dropped: told.dropped,
                delivered: told.delivered,
            })
        };
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
            // A handle that falls back to another engine warns.
            ensure!(!said.contains("WARNING"), "{said}");
            outside::flood(bench, self.len, member, waits("INT", TCPDUMP_GRACE), tally)
        })
    }

    /// netsniff has no snapshot length, and must not change the machine's socket memory.
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

    /// The worker polls, so its CPU time is the whole core's while frames are sent. The first
    /// thread is idle meanwhile.
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

/// Why an application can't be used here.
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

/// For a peer that loads an XDP program of its own.
fn without_program<T>(bench: &Bench, work: impl FnOnce() -> Result<T>) -> Result<T> {
    bench.wire.take_no_frames();
    let done = work();
    bench.wire.clear()?;
    bench.wire.take_frames(Verdict::Pass)?;
    done
}

static SHORT: Peers = Peers {
    len: SHORTEST,
    snaplen: None,
    what: "peers",
    columns: &COLUMNS,
};
static LONG: Peers = Peers {
    len: 1496,
    snaplen: Some(96),
    ..SHORT
};
static XDP_SHORT: Peers = Peers {
    what: "xdp and peers",
    columns: &XDP_COLUMNS,
    ..SHORT
};
static XDP_LONG: Peers = Peers {
    len: 1496,
    ..XDP_SHORT
};

impl Peers {
    const fn captured(&'static self, what: &'static str, of: &'static str) -> Goal {
        Goal::ratio(what, self, Figure::CapturedPps, Must::Free).between(of, "system")
    }

    const fn cpu(&'static self, what: &'static str, of: &'static str) -> Goal {
        Goal::ratio(what, self, Figure::ReaderNs, Must::Free).between(of, "system")
    }
}

pub(super) const PEERS: Row = Row {
    name: "peers",
    what: "captured packets and reader CPU by library and program, ratios to libpcap",
    goals: &[
        SHORT.captured("60 B, fanpcap, captured", "ours"),
        SHORT.captured("60 B, tcpdump, captured", "tcpdump"),
        SHORT.captured("60 B, tcpdump on fanpcap, captured", "tcpdump_ours"),
        SHORT.captured("60 B, netsniff-ng, captured", "netsniff"),
        SHORT.captured("60 B, testpmd net_af_packet, captured", "dpdk_packet"),
        SHORT.captured("60 B, testpmd net_af_xdp, captured", "dpdk_xdp"),
        SHORT.cpu("60 B, fanpcap, reader CPU", "ours"),
        SHORT.cpu("60 B, tcpdump, reader CPU", "tcpdump"),
        SHORT.cpu("60 B, tcpdump on fanpcap, reader CPU", "tcpdump_ours"),
        SHORT.cpu("60 B, netsniff-ng, reader CPU", "netsniff"),
        LONG.captured("1496 B, fanpcap, captured", "ours"),
        LONG.captured("1496 B, tcpdump, captured", "tcpdump"),
        LONG.captured("1496 B, tcpdump on fanpcap, captured", "tcpdump_ours"),
        LONG.captured("1496 B, netsniff-ng, captured", "netsniff"),
        LONG.captured("1496 B, testpmd net_af_packet, captured", "dpdk_packet"),
        LONG.captured("1496 B, testpmd net_af_xdp, captured", "dpdk_xdp"),
        LONG.cpu("1496 B, fanpcap, reader CPU", "ours"),
        LONG.cpu("1496 B, tcpdump, reader CPU", "tcpdump"),
        LONG.cpu("1496 B, tcpdump on fanpcap, reader CPU", "tcpdump_ours"),
        LONG.cpu("1496 B, netsniff-ng, reader CPU", "netsniff"),
    ],
    published: &[],
};

pub(super) const XDP_PEERS: Row = Row {
    name: "xdp-peers",
    what: "the XDP engine and other capture software: captured and CPU, ratios to libpcap",
    goals: &[
        XDP_SHORT.captured("60 B, fanpcap, captured", "steal"),
        XDP_SHORT.captured("60 B, tcpdump on fanpcap, captured", "tcpdump_steal"),
        XDP_SHORT.captured("60 B, netsniff-ng, captured", "netsniff"),
        XDP_SHORT.captured("60 B, testpmd net_af_xdp, captured", "dpdk_xdp"),
        XDP_SHORT.cpu("60 B, fanpcap, reader CPU", "steal"),
        XDP_SHORT.cpu("60 B, tcpdump on fanpcap, reader CPU", "tcpdump_steal"),
        XDP_SHORT.cpu("60 B, netsniff-ng, reader CPU", "netsniff"),
        XDP_SHORT.cpu("60 B, testpmd net_af_xdp, reader CPU", "dpdk_xdp"),
        XDP_LONG.captured("1496 B, fanpcap, captured", "steal"),
        XDP_LONG.captured("1496 B, tcpdump on fanpcap, captured", "tcpdump_steal"),
        XDP_LONG.captured("1496 B, netsniff-ng, captured", "netsniff"),
        XDP_LONG.captured("1496 B, testpmd net_af_xdp, captured", "dpdk_xdp"),
    ],
    published: &[],
};
