//! One trial: starts the readers (and their poller), then the generator, and checks that all
//! counters agree.

use std::time::Duration;

use anyhow::Result;
use fanpcap_testbed::Member;

use crate::bench::Bench;
use crate::cores::{Cores, Occupant};
use crate::figure::{Figure, Sample};
use crate::generator::{Load, Sent};
use crate::libraries::Side;
use crate::pause::pause;
use crate::poller::{Poller, PollerReport};
use crate::reader::{self, ReaderReport, Seat, Settings, Work};
use crate::refusal::{Counters, OFF_RATE, Refusal, from_device, generator_share, on_time};
use crate::wire::Arrived;

/// Pause between the reader's start and the first frame.
pub(crate) const SETTLE: Duration = Duration::from_millis(150);
/// Pause between the last frame and the reader's end: more than twice the reader's timeout. After
/// the timeout the kernel hands over a partly filled block.
pub(crate) const GRACE: Duration = Duration::from_millis(250);

/// In a run with fewer probes than this, the rate does not show whether the generator was late.
const MANY: u64 = 1000;

/// The parts of a trial.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial<'a> {
    pub(crate) side: Side,
    pub(crate) settings: Settings,
    pub(crate) work: Work,
    /// One reader runs on each seat.
    pub(crate) seats: &'a [Seat],
    pub(crate) load: Load,
}

/// The results of a valid trial.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) sent: Sent,
    pub(crate) told: Vec<ReaderReport>,
    pub(crate) counters: Counters,
    /// The counters of the readers' poller, if they have one.
    pub(crate) poller: Option<PollerReport>,
}

/// The processes of a trial besides the generator.
#[derive(Debug)]
struct Running {
    /// The readers end before their poller.
    readers: Vec<Member>,
    poller: Option<Poller>,
}

impl Trial<'_> {
    /// Runs the trial; a refusal says why the trial does not count.
    pub(crate) fn run(&self, bench: &Bench) -> Result<Result<Done, Refusal>> {
        let way = self.load.way().unwrap_or(bench.way);
        bench.arranged(self.side, way, || self.run_on(bench))
    }

    fn run_on(&self, bench: &Bench) -> Result<Result<Done, Refusal>> {
        let before = bench.arrived()?;
        let mut running = self.start(bench)?;
        pause(SETTLE)?;
        let cores = Cores::watch(bench, &self.occupants(bench, &running))?;
        if let Some(poller) = &mut running.poller {
            poller.begin()?;
        }
        let sent = bench.generate(self.load)?;
        let undisturbed = cores.undisturbed(&sent, self.wakes_often())?;
        let done = self.finish(bench, running, before, sent)?;
        let accepted = done
            .agree()
            .and(undisturbed)
            .and_then(|()| self.well_sent(bench, &sent));
        Ok(accepted.map(|()| done))
    }

    /// Starts the poller, if the readers need one, and the readers.
    fn start(&self, bench: &Bench) -> Result<Running> {
        let source = self.side.source();
        let poller = source.map(|source| Poller::start(bench, source));
        let poller = poller.transpose()?;
        let readers = self
            .seats
            .iter()
            .map(|seat| bench.seat(self.side, self.settings, self.work, *seat))
            .collect::<Result<Vec<_>>>()?;
        Ok(Running { readers, poller })
    }

    /// Whether a core often goes idle and wakes again: the reader's core in immediate mode, or the
    /// core of a generator that sleeps between bursts or probes.
    fn wakes_often(&self) -> bool {
        self.settings.immediate || !matches!(self.load, Load::Frames { pps: None, .. })
    }

    fn occupants(&self, bench: &Bench, running: &Running) -> Vec<Occupant> {
        let seated = self.seats.iter().zip(&running.readers);
        seated
            .map(|(seat, reader)| Occupant {
                pid: reader.pid(),
                cpu: bench.cpu(seat.place),
            })
            .chain(running.poller.as_ref().and_then(Poller::occupant))
            .collect()
    }

    /// Lets the readers drain their rings, ends them and their poller, and collects all counters.
    fn finish(
        &self,
        bench: &Bench,
        Running { readers, poller }: Running,
        before: Arrived,
        sent: Sent,
    ) -> Result<Done> {
        bench.stray()?;
        pause(GRACE)?;
        let arrived = bench.arrived()?.since(before);
        for reader in &readers {
            reader.signal("TERM")?;
        }
        let told = readers
            .into_iter()
            .map(|reader| reader::told(&reader.wait()?, self.side, bench.libraries()))
            .collect::<Result<Vec<_>>>()?;
        let poller = poller.map(Poller::end).transpose()?;
        let tally = told.iter().map(ReaderReport::tally).sum();
        let counters = Counters {
            copies: self.copies(),
            ..Counters::new(sent.frames, arrived, tally)
        };
        // A member does not count the packets that were dropped before its poller saw them.
        let before_poller = poller.map_or(0, |poller| poller.dropped);
        Ok(Done {
            sent,
            told,
            counters: counters.with_drops(before_poller),
            poller,
        })
    }

    /// How often the kernel delivers each packet: once for each group and once for each reader
    /// without a group.
    fn copies(&self) -> u64 {
        let mut groups: Vec<u16> = self.seats.iter().filter_map(Seat::group).collect();
        groups.sort_unstable();
        groups.dedup();
        let alone = self.seats.iter().filter(|seat| seat.fanout.is_none());
        (groups.len() + alone.count()) as u64
    }

    /// Checks that a generator with a rate kept this rate. For a flood, checks that the generator
    /// had its core to itself, unless a reader runs on this core.
    fn well_sent(&self, bench: &Bench, sent: &Sent) -> Result<(), Refusal> {
        let alone = |seat: &Seat| bench.cpu(seat.place) == Some(bench.reader_cpu);
        match self.load {
            _ if bench.shared => Ok(()),
            Load::Frames { pps: Some(pps), .. } => on_time(sent.pps() / pps.get() as f64, OFF_RATE),
            Load::Frames { .. } if self.seats.iter().all(alone) => generator_share(sent.share()),
            Load::Probes(count, interval) if count >= MANY => {
                on_time(sent.pps() * interval.as_secs_f64(), OFF_RATE)
            }
            Load::Frames { .. } | Load::Probes(..) => Ok(()),
        }
    }
}

/// The figures of every run; `cpu_ns` is the readers' CPU time.
pub(crate) fn sample(sent: &Sent, counters: &Counters, cpu_ns: u64) -> Sample {
    let delivered = counters.delivered as f64;
    Sample::from([
        (Figure::Sent, counters.sent as f64),
        (Figure::LinkReceived, counters.arrived as f64),
        (Figure::InterfaceDropped, counters.lost as f64),
        (Figure::ApplicationReceived, delivered),
        (Figure::ApplicationDropped, counters.dropped as f64),
        (Figure::CapturedPps, delivered / sent.seconds()),
        (Figure::ReaderNs, cpu_ns as f64 / delivered),
        (
            Figure::GeneratorNs,
            sent.cpu_ns as f64 / counters.sent as f64,
        ),
    ])
}

/// Adds the share of sent frames that the readers captured.
pub(crate) fn with_share(mut sample: Sample, counters: &Counters) -> Sample {
    let share = counters.delivered as f64 / counters.sent as f64;
    sample.insert(Figure::CapturedShare, 100.0 * share);
    sample
}

impl Done {
    /// Refuses counters that disagree.
    fn agree(&self) -> Result<(), Refusal> {
        if let Some(poller) = self.poller {
            from_device(self.counters.arrived, poller.received)?;
        }
        self.counters.agree()
    }

    /// The figures of every trial.
    pub(crate) fn sample(&self) -> Sample {
        let cpu_ns = self.told.iter().map(|told| told.cpu_ns).sum();
        let mut sample = sample(&self.sent, &self.counters, cpu_ns);
        if let Some(poller) = self.poller {
            let ns = poller.cpu.as_nanos() as f64 / self.counters.delivered as f64;
            sample.insert(Figure::PollerNs, ns);
        }
        sample
    }

    /// The figures of every trial, and the share of sent frames that the readers captured.
    pub(crate) fn sample_with_share(&self) -> Sample {
        with_share(self.sample(), &self.counters)
    }
}
