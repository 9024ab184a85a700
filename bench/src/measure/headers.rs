//! A measure of one node that sends the header of every packet to an analyzer. The analyzer counts
//! the headers. The measure has the shape of DiCAP's Table 1.

use std::env;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use fanpcap_gen::Sent;
use fanpcap_testbed::mirror::{HOST, MONITOR, Mirror};
use fanpcap_testbed::{Member, Program};
use serde_json::Value;

use super::nodes::{self, SETTINGS};
use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::libraries::Side;
use crate::priority;
use crate::quota::Quota;
use crate::reader::{self, Work};
use crate::refusal::{Counters, OFF_RATE, Refusal, on_time};

/// Thousandths of a CPU for the capturing program and the analyzer together.
const THOUSANDTHS: u32 = 150;
/// The analyzer's UDP port for datagrams in DiCAP's format (`dicap_port`).
const PORT: u16 = 7711;

/// Sends packets at `times` times the rate that libpcap's reader can handle.
pub(super) fn run(times: u32, bench: &Bench, key: &str) -> Result<Result<Sample, Refusal>> {
    let pps = capacity(bench)? * f64::from(times);
    trial(bench, key, Some(pps), bench.time)
}

/// The packets that libpcap's reader and the analyzer handle in a second, measured once.
fn capacity(bench: &Bench) -> Result<f64> {
    static CAPACITY: OnceLock<f64> = OnceLock::new();
    if let Some(known) = CAPACITY.get() {
        return Ok(*known);
    }
    let sample = trial(bench, "each", None, 3 * bench.time)?;
    let sample = sample.map_err(|refusal| anyhow!("measuring the rate of libpcap: {refusal}"))?;
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
    nodes::with_mirror(1, |mirror| {
        let ran = run_on(bench, mirror, key, pps, time);
        if key == "node" {
            mirror.on_node(0, || detach(bench))?;
        }
        ran
    })
}

fn run_on(
    bench: &Bench,
    mirror: &Mirror,
    key: &str,
    pps: Option<f64>,
    time: Duration,
) -> Result<Result<Sample, Refusal>> {
    let chain = Chain::start(bench, mirror, key)?;
    let sent = nodes::sent(bench, pps, time)?;
    let counted = chain.end(bench, mirror)?;
    Ok(judged(bench, &sent, pps, counted))
}

/// The figures of a run. Refuses a run in which a sent packet did not reach the capturing program.
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

/// The capturing program and the analyzer, within one quota.
struct Chain {
    key: String,
    analyzer: Member,
    source: Member,
    /// The quota, which is removed after both have ended.
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
            key => {
                let work = Work::Ship(if key == "each" { 1 } else { 28 });
                let reader = bench.reader_at(MONITOR, Side::System, SETTINGS, work);
                reader.args(["-A", &to]).start(&bench.scratch)
            }
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

    /// Ends both programs. Returns the number of headers that the analyzer has counted, and of
    /// packets that reached the capturing program. The analyzer ends first, so headers that it has
    /// not read when the run ends do not count.
    fn end(self, bench: &Bench, mirror: &Mirror) -> Result<(u64, u64)> {
        self.analyzer.signal("TERM")?;
        let ended = self.analyzer.wait()?;
        let status = ended.said.lines().rfind(|line| line.starts_with('{'));
        let status: Value = serde_json::from_str(status.context("the analyzer printed nothing")?)?;
        let counted = &status["figures"]["dicap_headers"];
        let counted = counted.as_u64().context("no count of headers")?;
        self.source.signal("TERM")?;
        let ended = self.source.wait()?;
        let seen = match &*self.key {
            "node" => mirror.forwarded(0)?,
            _ => reader::told(&ended, Side::System, bench.libraries())?.received,
        };
        Ok((counted, seen))
    }
}

/// This executable as a node or analyzer of a cluster. The caller adds the path of the settings'
/// file as the next argument.
fn own(bench: &Bench, verb: &str, ready: &'static str) -> Result<Program> {
    let own = env::current_exe().context("this program's file")?;
    let cpu = bench.reader_cpu.to_string();
    let program = priority::program(bench.library(), own, ready, Some(&cpu));
    Ok(program.args([verb, "--config"]))
}

/// Detaches the selection that a node leaves in the kernel.
fn detach(bench: &Bench) -> Result<()> {
    let program = own(bench, "node", "")?.arg("/dev/null");
    let program = program.args(["-i", MONITOR, "--detach"]);
    program.run(&bench.scratch).map(drop)
}
