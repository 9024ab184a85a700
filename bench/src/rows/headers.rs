//! One node that sends the header of every packet to an analyzer, which counts headers: DiCAP's
//! Table 1, in shape.

use std::env;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use fanpcap_gen::{Pace, Sent};
use fanpcap_testbed::mirror::{HOST, MONITOR, Mirror};
use fanpcap_testbed::{Member, Program, netns};
use serde_json::Value;

use super::dicap::{self, SETTINGS};
use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::libraries::Side;
use crate::measure::{Column, Measure};
use crate::pause::pause;
use crate::priority;
use crate::quota::{self, Quota};
use crate::reader::{self, Work};
use crate::refusal::{Counters, OFF_RATE, Refusal, on_time};
use crate::row::{Goal, Must, Row};
use crate::trial::{GRACE, SETTLE};

const COLUMNS: [Column; 3] = [
    Column::new("each", "libpcap, 1 header a datagram"),
    Column::new("full", "libpcap, 28 headers a datagram"),
    Column::new("node", "fanpcap node"),
];

/// What captures and what counts have so many thousandths of a CPU together.
const THOUSANDTHS: u32 = 150;
/// Where the paper's datagrams go.
const PORT: u16 = 7711;

/// Packets at so many times the rate that libpcap's reader takes.
#[derive(Debug)]
struct Headers(u32);

impl Measure for Headers {
    fn name(&self) -> String {
        format!(
            "headers to an analyzer, at {} times what libpcap takes",
            self.0
        )
    }

    fn columns(&self) -> &[Column] {
        &COLUMNS
    }

    fn absent(&self, _bench: &Bench, _column: &Column) -> Result<Option<String>> {
        Ok(quota::absent())
    }

    fn run(&self, bench: &Bench, column: &Column) -> Result<Result<Sample, Refusal>> {
        let pps = capacity(bench)? * f64::from(self.0);
        trial(bench, column.key, Some(pps), bench.time)
    }

    fn shown(&self) -> &[Figure] {
        &[Figure::SentPps, Figure::CapturedPps, Figure::LostShare]
    }
}

/// What libpcap's reader and the analyzer take in a second, measured once.
fn capacity(bench: &Bench) -> Result<f64> {
    static CAPACITY: OnceLock<f64> = OnceLock::new();
    if let Some(known) = CAPACITY.get() {
        return Ok(*known);
    }
    let sample = trial(bench, COLUMNS[0].key, None, 3 * bench.time)?;
    let sample = sample.map_err(|refusal| anyhow!("what libpcap takes: {refusal}"))?;
    let pps = sample[&Figure::CapturedPps];
    ensure!(pps > 0.0, "the analyzer counted no header");
    Ok(*CAPACITY.get_or_init(|| pps))
}

/// Sends to a node at a rate, or as fast as possible.
fn trial(
    bench: &Bench,
    key: &str,
    pps: Option<f64>,
    time: Duration,
) -> Result<Result<Sample, Refusal>> {
    let home = netns::current()?;
    let ran = Mirror::new(1).and_then(|mirror| {
        let ran = run_on(bench, &mirror, key, pps, time);
        if key == "node" {
            mirror.on_node(0, || detach(bench))?;
        }
        ran
    });
    netns::enter(home.as_fd())?;
    ran
}

fn run_on(
    bench: &Bench,
    mirror: &Mirror,
    key: &str,
    pps: Option<f64>,
    time: Duration,
) -> Result<Result<Sample, Refusal>> {
    let chain = Chain::start(bench, mirror, key)?;
    pause(SETTLE)?;
    let pace = pps.map_or(Ok(Pace::Top), dicap::even)?;
    let sent = dicap::sent(bench, pace, time)?;
    pause(GRACE)?;
    let counted = chain.end(bench, mirror)?;
    Ok(judged(bench, &sent, pps, counted))
}

/// The figures, if all that was sent reached what captures.
fn judged(
    bench: &Bench,
    sent: &Sent,
    pps: Option<f64>,
    (counted, seen): (u64, u64),
) -> Result<Sample, Refusal> {
    let counters = Counters {
        sent: sent.frames,
        arrived: seen,
        lost: 0,
        copies: 1,
        received: counted,
        dropped: 0,
        delivered: counted,
    };
    if counters.sent != counters.arrived {
        return Err(Refusal::Arrived(counters));
    }
    let seconds = sent.nanoseconds as f64 / 1e9;
    let (frames, counted) = (sent.frames as f64, counted as f64);
    if let Some(pps) = pps {
        bench.alone(on_time(frames / seconds / pps, OFF_RATE))?;
    }
    Ok(Sample::from([
        (Figure::Sent, frames),
        (Figure::SentPps, frames / seconds),
        (Figure::CapturedPps, counted / seconds),
        (Figure::LostShare, 100.0 * (1.0 - counted / frames)),
    ]))
}

/// What captures and what counts, within one quota.
struct Chain {
    key: String,
    analyzer: Member,
    source: Member,
    /// Removed after both have ended.
    _quota: Quota,
}

impl Chain {
    fn start(bench: &Bench, mirror: &Mirror, key: &str) -> Result<Self> {
        let text = format!(
            "cluster = bench\nengine = fixed\nnodes = 1\ninitial = 77\nmode = capture\n\
             analyzers = {HOST}:7710\ntransport = dicap\ndicap_port = {PORT}\n"
        );
        let conf = bench.scratch.write("headers.conf", &text)?;
        let quota = Quota::new(THOUSANDTHS)?;
        let cluster = |verb, ready| Ok::<_, anyhow::Error>(own(bench, verb, ready)?.arg(&conf));
        let analyzer = cluster("analyzer", "{")?.arg("--json");
        let analyzer = analyzer.start(&bench.scratch)?;
        let to = format!("{HOST}:{PORT}");
        let source = mirror.on_node(0, || match key {
            "node" => {
                let node = cluster("node", "loaded topology")?;
                let node = node.args(["-i", MONITOR, "--node", "1"]);
                node.start(&bench.scratch)
            }
            "each" => bench.ship_at(MONITOR, SETTINGS, Work::Ship(1), &to),
            _ => bench.ship_at(MONITOR, SETTINGS, Work::Ship(28), &to),
        })?;
        quota.hold(analyzer.pid())?;
        quota.hold(source.pid())?;
        Ok(Self {
            key: key.to_owned(),
            analyzer,
            source,
            _quota: quota,
        })
    }

    /// The headers that the analyzer has counted, and the packets that reached what captures. The
    /// analyzer ends first: what still waits then was not counted in time.
    fn end(self, bench: &Bench, mirror: &Mirror) -> Result<(u64, u64)> {
        self.analyzer.signal("TERM")?;
        let ended = self.analyzer.wait()?;
        let status = ended.said.lines().rfind(|line| line.starts_with('{'));
        let status: Value = serde_json::from_str(status.context("the analyzer said nothing")?)?;
        let counted = &status["figures"]["dicap_headers"];
        let counted = counted.as_u64().context("the analyzer counted nothing")?;
        self.source.signal("TERM")?;
        let ended = self.source.wait()?;
        let seen = match &*self.key {
            "node" => mirror.forwarded(0)?,
            _ => reader::told(&ended, Side::System, bench.library())?.received,
        };
        Ok((counted, seen))
    }
}

/// This program as a cluster's, which reads the settings that follow.
fn own(bench: &Bench, verb: &str, ready: &'static str) -> Result<Program> {
    let own = env::current_exe().context("this program's file")?;
    let cpu = bench.reader_cpu.to_string();
    let program = priority::program(bench.library(), own, ready, Some(&cpu));
    Ok(program.args([verb, "--config"]))
}

/// Removes what a node leaves in the kernel.
fn detach(bench: &Bench) -> Result<()> {
    let program = own(bench, "node", "")?.arg("/dev/null");
    let program = program.args(["-i", MONITOR, "--detach"]);
    program.run(&bench.scratch).map(drop)
}

static RATES: [Headers; 5] = [Headers(1), Headers(2), Headers(3), Headers(4), Headers(5)];

const fn lost(what: &'static str, rate: usize, of: &'static str) -> Goal {
    Goal::ratio(what, &RATES[rate - 1], Figure::LostShare, Must::Free).alone(of)
}

pub(super) const HEADERS: Row = Row {
    name: "dicap-headers",
    what: "1 node sends each packet's header to an analyzer: DiCAP's Table 1 in shape",
    goals: &[
        lost("1 time: libpcap, 1 a datagram, lost %", 1, "each"),
        lost("1 time: libpcap, 28 a datagram, lost %", 1, "full"),
        lost("1 time: fanpcap node, lost %", 1, "node"),
        lost("2 times: libpcap, 1 a datagram, lost %", 2, "each"),
        lost("2 times: libpcap, 28 a datagram, lost %", 2, "full"),
        lost("2 times: fanpcap node, lost %", 2, "node"),
        lost("3 times: libpcap, 1 a datagram, lost %", 3, "each"),
        lost("3 times: libpcap, 28 a datagram, lost %", 3, "full"),
        lost("3 times: fanpcap node, lost %", 3, "node"),
        lost("4 times: libpcap, 1 a datagram, lost %", 4, "each"),
        lost("4 times: libpcap, 28 a datagram, lost %", 4, "full"),
        lost("4 times: fanpcap node, lost %", 4, "node"),
        lost("5 times: libpcap, 1 a datagram, lost %", 5, "each"),
        lost("5 times: libpcap, 28 a datagram, lost %", 5, "full"),
        lost("5 times: fanpcap node, lost %", 5, "node"),
    ],
    published: &[
        "DiCAP, Table 1 (1 node, Pentium 4, 1 Gbit/s), loss at 119, 232, 380, 492 and 620 kpps: libpcap 0, 10, 75, \
         90 and 93 %, PF_RING 0, 1, 28, 83 and 96 %, DiCAP's own capture of headers 0 % at all. libpcap counted \
         packets there and sent nothing",
    ],
};
