//! A measure of two receive queues against one. There is a generator on each core, and one reader
//! that reads no packet's bytes.

use anyhow::Result;

use crate::bench::Bench;
use crate::column::{Column, Receivers};
use crate::cores::{Cores, Occupant};
use crate::figure::Sample;
use crate::generator::frame::SHORTEST;
use crate::generator::{Load, Sent, Way};
use crate::libraries::{Host, Side};
use crate::pause::pause;
use crate::reader::{self, Settings, Work};
use crate::refusal::{Counters, Refusal, Tally, generator_share};
use crate::trial::{GRACE, SETTLE, sample};
use crate::verdict::Verdict;
use crate::wire::{Arrived, QUEUES};

/// Why a column with a receive queue for each CPU can't be measured; `None` if it can.
pub(super) fn no_own_queues(bench: &Bench) -> Option<String> {
    let shared = bench.generator_cpu % QUEUES == bench.reader_cpu % QUEUES;
    shared.then(|| "both CPUs have the same receive queue".to_owned())
}

/// Floods one queue or both. A generator's CPU determines which queue of the device gets its
/// frames.
pub(super) fn run(bench: &Bench, column: &Column) -> Result<Result<Sample, Refusal>> {
    let both = [bench.generator_cpu, bench.reader_cpu];
    let is_single = column.key.ends_with("one");
    let cpus = if is_single { &both[..1] } else { &both[..] };
    if let Receivers::Program(verdict) = column.receivers {
        return dropped(bench, verdict, cpus);
    }
    let side = column.side.unwrap_or(Side::Xdp(Host::Nothing));
    bench.arranged(side, Way::LiveFrames, || captured(bench, side, cpus))
}

fn captured(bench: &Bench, side: Side, cpus: &[usize]) -> Result<Result<Sample, Refusal>> {
    let member = bench.read(side, Settings::default(), Work::Skip)?;
    pause(SETTLE)?;
    let reader = Occupant {
        pid: member.pid(),
        cpu: Some(bench.reader_cpu),
    };
    let flood = Flood::run(bench, cpus, &[reader])?;
    pause(GRACE)?;
    member.signal("TERM")?;
    let told = reader::told(&member.wait()?, side, bench.libraries())?;
    Ok(flood.sample(bench, told.tally(), told.cpu_ns))
}

fn dropped(bench: &Bench, verdict: Verdict, cpus: &[usize]) -> Result<Result<Sample, Refusal>> {
    bench.wire.take_frames(verdict)?;
    let flood = Flood::run(bench, cpus, &[]);
    bench.restore()?;
    let flood = flood?;
    let tally = Tally {
        received: flood.arrived.received,
        dropped: 0,
        delivered: flood.arrived.received,
    };
    Ok(flood.sample(bench, tally, 0))
}

/// Generators that have sent at the same time.
struct Flood {
    sent: Vec<Sent>,
    /// Frames that the device counted.
    arrived: Arrived,
    undisturbed: Result<(), Refusal>,
}

impl Flood {
    fn run(bench: &Bench, cpus: &[usize], readers: &[Occupant]) -> Result<Self> {
        let before = bench.arrived()?;
        let cores = Cores::watch(bench, readers)?;
        let places = cpus.iter().map(|cpu| (&bench.wire, *cpu));
        let load = Load::flood(SHORTEST, Way::LiveFrames, bench.time);
        let sent = bench.generate_together(places, load)?;
        let undisturbed = cores.undisturbed_by(&sent, false)?;
        bench.stray()?;
        Ok(Self {
            undisturbed,
            arrived: bench.arrived()?.since(before),
            sent: sent.into_iter().map(|(_, sent)| sent).collect(),
        })
    }

    /// The figures of a run that counts. The reader uses a part of the second generator's core, so
    /// only the first generator must have had its core alone.
    fn sample(&self, bench: &Bench, told: Tally, cpu_ns: u64) -> Result<Sample, Refusal> {
        let sent = Sent::together(&self.sent)?;
        let counters = Counters::new(sent.frames, self.arrived, told);
        let first = self.sent.first().map_or(0.0, Sent::share);
        counters.agree()?;
        self.undisturbed?;
        bench.alone(generator_share(first))?;
        Ok(sample(&sent, &counters, cpu_ns))
    }
}
