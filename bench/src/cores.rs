//! Watches the cores of the generator and the readers: did other processes use them during a run?

use std::time::Duration;

use anyhow::Result;

use crate::bench::Bench;
use crate::cpu::{self, Watch};
use crate::generator::Sent;
use crate::refusal::{Refusal, foreign_share};

/// A process that belongs to the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occupant {
    pub(crate) pid: u32,
    /// The core that the process stays on; `None` if it may move.
    pub(crate) cpu: Option<usize>,
}

/// The cores of generator and reader, while they are watched.
#[derive(Debug)]
pub(crate) struct Cores {
    generator_cpu: usize,
    watches: Vec<Watch>,
    /// The processes of the run, each with the CPU time that it had used before the run.
    own: Vec<(Occupant, Duration)>,
    /// Whether other processes may use the cores.
    shared: bool,
    /// The share of a core that other processes may take.
    foreign: f64,
}

impl Cores {
    /// Begins to watch. When this is called, the readers must be ready, and the generator must not
    /// have started.
    pub(crate) fn watch(bench: &Bench, readers: &[Occupant]) -> Result<Self> {
        let cpus = [bench.generator_cpu, bench.reader_cpu];
        Ok(Self {
            generator_cpu: bench.generator_cpu,
            watches: cpus.into_iter().map(Watch::start).collect::<Result<_>>()?,
            own: readers
                .iter()
                .map(|reader| Ok((*reader, cpu::of_all_threads(reader.pid)?)))
                .collect::<Result<_>>()?,
            shared: bench.shared,
            foreign: bench.foreign,
        })
    }

    /// Refuses a run in which other processes used the cores of the readers or the generator. When
    /// this is called, the generator must have ended.
    pub(crate) fn undisturbed(&self, sent: &Sent, woken: bool) -> Result<Result<(), Refusal>> {
        self.undisturbed_by(&[(self.generator_cpu, *sent)], woken)
    }

    /// Refuses a run in which other processes used the cores. `generators` has each generator's CPU
    /// and report; `woken` says that a reader wakes for each packet.
    pub(crate) fn undisturbed_by(
        &self,
        generators: &[(usize, Sent)],
        woken: bool,
    ) -> Result<Result<(), Refusal>> {
        if self.shared {
            return Ok(Ok(()));
        }
        // A process that moves between cores may have used either core.
        let anywhere = self.of(None)?;
        for watch in &self.watches {
            let mut own = anywhere + self.of(Some(watch.cpu()))?;
            let here = generators.iter().filter(|(cpu, _)| *cpu == watch.cpu());
            let sending = here.map(|(_, sent)| sent.process_cpu_ns).sum();
            own += Duration::from_nanos(sending);
            if let Err(refusal) =
                foreign_share(watch.cpu(), watch.foreign(own)?, (self.foreign, woken))
            {
                return Ok(Err(refusal));
            }
        }
        Ok(Ok(()))
    }

    fn of(&self, cpu: Option<usize>) -> Result<Duration> {
        let here = self.own.iter().filter(|(occupant, _)| occupant.cpu == cpu);
        here.map(had).sum()
    }
}

fn had((occupant, before): &(Occupant, Duration)) -> Result<Duration> {
    Ok(cpu::of_all_threads(occupant.pid)?.saturating_sub(*before))
}
