//! The generator's core and the reader's during a run: was anybody else at work there?

use std::time::Duration;

use anyhow::Result;
use fanpcap_testkit::Member;

use crate::bench::Bench;
use crate::cpu::{self, Watch};
use crate::generator::Sent;
use crate::refusal::{Refusal, foreign_share};

/// Both cores, watched.
#[derive(Debug)]
pub(crate) struct Cores {
    generator: Watch,
    reader: Watch,
    /// CPU time that the reader had before.
    reader_before: Duration,
    /// Whether others may be at work.
    shared: bool,
}

impl Cores {
    /// Begins now, with the reader ready and the generator not yet started.
    pub(crate) fn watch(bench: &Bench, reader: &Member) -> Result<Self> {
        Ok(Self {
            generator: Watch::start(bench.generator_cpu)?,
            reader: Watch::start(bench.reader_cpu)?,
            reader_before: cpu::of_process(reader.pid())?,
            shared: bench.shared,
        })
    }

    /// Whether the two had their cores to themselves, once the generator has ended.
    pub(crate) fn undisturbed(
        &self,
        sent: &Sent,
        reader: &Member,
        woken: bool,
    ) -> Result<Result<(), Refusal>> {
        if self.shared {
            return Ok(Ok(()));
        }
        let reader_time = cpu::of_process(reader.pid())?.saturating_sub(self.reader_before);
        let generator_time = Duration::from_nanos(sent.process_cpu_ns);
        let own = [
            (&self.generator, generator_time),
            (&self.reader, reader_time),
        ];
        for (watch, own) in own {
            if let Err(refusal) = foreign_share(watch.cpu(), watch.foreign(own)?, woken) {
                return Ok(Err(refusal));
            }
        }
        Ok(Ok(()))
    }
}
