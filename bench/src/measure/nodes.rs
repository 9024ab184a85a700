//! A measure of several nodes that share a mirrored stream. libpcap runs behind the selection. The
//! measure has the shape of DiCAP's Fig. 8.

use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use fanpcap_clusterd::selector::Selector;
use fanpcap_gen::{Choice, Description, Pace, Plan, Rate, Sender, Sent, Until};
use fanpcap_linux::bpf::{Attached, Hook};
use fanpcap_linux::interface;
use fanpcap_linux::process::cpu::pin;
use fanpcap_select::layout::Lanes;
use fanpcap_select::{Action, Claim, Claims, Program, Selection};
use fanpcap_testbed::mirror::{MONITOR, Mirror, WIRE};
use fanpcap_testbed::{Member, netns};
use serde::Deserialize;

use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::libraries::Side;
use crate::pause::pause;
use crate::quota::Quota;
use crate::reader::{self, ReaderReport, Settings, Work};
use crate::refusal::{Counters, OFF_RATE, Refusal, on_time};
use crate::trial::{GRACE, SETTLE};
use crate::wire::Arrived;

fn nodes(key: &str) -> usize {
    match key {
        "one" => 1,
        "two" => 2,
        _ => 4,
    }
}

/// Thousandths of a CPU for each reader, so that four readers need less than one CPU.
const THOUSANDTHS: u32 = 150;
/// The work for each packet is so large that the readers set the limit, not the mirror.
const WORK: Work = Work::Busy(20_000);
/// The ring has room for the packets of only 70 ms, so that the packets in the ring at the end are
/// a small part of a run.
pub(super) const SETTINGS: Settings = Settings {
    snaplen: Some(96),
    immediate: true,
    buffer: Some(128 * 1024),
    timeout: None,
    filter: None,
};

/// The load of a measure of nodes, as a multiple of the rate that one node can handle.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nodes {
    times: f64,
    /// Whether `times` is the load of each node. Otherwise it is the load of all nodes together.
    #[serde(default)]
    each: bool,
}

impl Nodes {
    pub(super) fn run(&self, bench: &Bench, key: &str) -> Result<Result<Sample, Refusal>> {
        let nodes = nodes(key);
        let times = if self.each {
            self.times * nodes as f64
        } else {
            self.times
        };
        let pps = capacity(bench)? * times;
        cluster(bench, nodes, pps, bench.time)
    }
}

/// The packets that one node captures in a second, measured once.
fn capacity(bench: &Bench) -> Result<f64> {
    static CAPACITY: OnceLock<f64> = OnceLock::new();
    /// A rate that is much higher than the node can handle.
    const PPS: f64 = 20_000.0;
    if let Some(known) = CAPACITY.get() {
        return Ok(*known);
    }
    // This run is longer than other runs, so that the packets left in the ring at the end count
    // less.
    let sample = cluster(bench, 1, PPS, 3 * bench.time)?;
    let sample = sample.map_err(|refusal| anyhow::anyhow!("measuring one node: {refusal}"))?;
    Ok(*CAPACITY.get_or_init(|| sample[&Figure::CapturedPps]))
}

/// Sends frames to this many nodes.
fn cluster(
    bench: &Bench,
    nodes: usize,
    pps: f64,
    time: Duration,
) -> Result<Result<Sample, Refusal>> {
    with_mirror(nodes, |mirror| {
        let started = (0..nodes).map(|node| Node::start(bench, mirror, node));
        let started = started.collect::<Result<Vec<_>>>()?;
        let sent = sent(bench, Some(pps), time)?;
        let ended = started.into_iter().map(|node| node.end(bench));
        let told = ended.collect::<Result<Vec<_>>>()?;
        Ok(judged(bench, &sent, pps, &told))
    })
}

/// Runs `work` with a mirror and its nodes, each in a separate namespace.
pub(super) fn with_mirror<T>(nodes: usize, work: impl FnOnce(&Mirror) -> Result<T>) -> Result<T> {
    let home = netns::current()?;
    let done = Mirror::new(nodes).and_then(|mirror| work(&mirror));
    netns::enter(home.as_fd())?;
    done
}

/// The figures of a run. Refuses a run in which a packet did not reach exactly one node's libpcap.
fn judged(bench: &Bench, sent: &Sent, pps: f64, told: &[ReaderReport]) -> Result<Sample, Refusal> {
    let arrived = Arrived {
        received: sent.frames,
        dropped: 0,
    };
    let tally = told.iter().map(ReaderReport::tally).sum();
    let counters = Counters::new(sent.frames, arrived, tally);
    counters.agree()?;
    let seconds = sent.nanoseconds as f64 / 1e9;
    let rate = sent.frames as f64 / seconds;
    bench.alone(on_time(rate / pps, OFF_RATE))?;
    let delivered = counters.delivered as f64;
    Ok(Sample::from([
        (Figure::Sent, sent.frames as f64),
        (Figure::SentPps, rate),
        (Figure::ApplicationReceived, delivered),
        (Figure::ApplicationDropped, counters.dropped as f64),
        (Figure::CapturedPps, delivered / seconds),
        (
            Figure::CapturedShare,
            100.0 * delivered / sent.frames as f64,
        ),
    ]))
}

/// A node: the selection on its device, and a reader behind the selection. A quota limits the
/// reader's CPU time.
struct Node {
    reader: Member,
    /// The selection, which is detached at the end.
    _attached: Attached,
    /// The quota, which is removed after the reader has ended.
    _quota: Quota,
}

impl Node {
    fn start(bench: &Bench, mirror: &Mirror, node: usize) -> Result<Self> {
        let nodes = mirror.count();
        let program = Program {
            selection: Selection::default(),
            cluster: 0,
            action: Action::Pass,
            lanes: Lanes::for_queues(1),
            filter: None,
        };
        let selector = Selector::load(&program, None)?;
        let claims = Claims::new(|bucket| match bucket % nodes == node {
            true => Claim::Mine,
            false => Claim::Elsewhere,
        });
        selector.switch(&claims, 1);
        let quota = Quota::new(THOUSANDTHS)?;
        mirror.on_node(node, || {
            let index = interface::index(MONITOR).context("the node's device")?;
            let attached = selector.attach(index, Hook::Driver);
            let attached = attached.context("attaching the selection")?;
            let reader = bench.reader_at(MONITOR, Side::System, SETTINGS, WORK);
            let reader = reader.start(&bench.scratch)?;
            quota.hold(reader.pid())?;
            Ok(Self {
                reader,
                _attached: attached,
                _quota: quota,
            })
        })
    }

    fn end(self, bench: &Bench) -> Result<ReaderReport> {
        self.reader.signal("TERM")?;
        reader::told(&self.reader.wait()?, Side::System, bench.libraries())
    }
}

/// Sends different packets to nodes that are ready, evenly at a rate or as fast as possible. Then
/// waits until the nodes have drained their rings. The generator's CPU also runs the receive path
/// of the mirror and of the nodes.
pub(super) fn sent(bench: &Bench, pps: Option<f64>, time: Duration) -> Result<Sent> {
    let cpu = bench.generator_cpu;
    let pace = match pps {
        Some(pps) => Pace::Even(format!("{pps:.0}pps").parse::<Rate>()?),
        None => Pace::Top,
    };
    pause(SETTLE)?;
    // A separate thread sends, because `send` pins its thread to the generator's CPU.
    let sent = thread::scope(|scope| scope.spawn(|| send(cpu, pace, time)).join());
    let sent = sent.expect("the generator does not panic")?;
    pause(GRACE)?;
    Ok(sent)
}

fn send(cpu: usize, pace: Pace, time: Duration) -> Result<Sent> {
    let description = Description {
        // With so many flows, chance makes no node's share greater by more than a hundredth.
        flows: 1 << 16,
        ..Description::default()
    };
    pin(cpu)?;
    let mut sender = Sender::open(WIRE, description.pool()?, Choice::Portable)?;
    let plan = Plan {
        until: Until::Elapsed(time),
        pace,
    };
    sender.send(&plan, &AtomicBool::new(false))
}
