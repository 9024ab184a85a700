//! The bench: a wire, a generator and a reader on a core each, and one run of them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::{Injector, Member, Scratch};

use crate::generator::{self, Load, Sent, Way, frame};
use crate::libraries::{Libraries, Side};
use crate::out::tell;
use crate::reader::{self, Core, Reader, Seat, Settings, Work};
use crate::refusal::Refusal;
use crate::topology::Pair;
use crate::wire::{Verdict, Wire};

/// How to go about it; the same for all runs.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// How long a flood lasts.
    pub(crate) time: Duration,
    /// Ours, and how it is told to capture.
    pub(crate) libraries: Libraries,
    /// Don't try live frames.
    pub(crate) portable: bool,
    /// Accept runs while others use the same CPUs.
    pub(crate) shared: bool,
    /// Send one more frame than the generator tells.
    pub(crate) stray: bool,
    /// The CPUs that were asked for.
    pub(crate) cpus: Option<Pair>,
}

/// Everything that runs need, once made.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) wire: Wire,
    reader: Reader,
    pub(crate) scratch: Scratch,
    stray: bool,
    /// Whether others may use the CPUs during a run.
    pub(crate) shared: bool,
    /// How floods are sent.
    pub(crate) way: Way,
    /// How long they last.
    pub(crate) time: Duration,
    pub(crate) generator_cpu: usize,
    pub(crate) reader_cpu: usize,
}

/// What a device has counted since it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) received: u64,
    pub(crate) dropped: u64,
}

impl Bench {
    /// Makes namespaces, devices and the reader, and finds out how frames can be sent. The calling
    /// thread must be in a network namespace of its own.
    pub(crate) fn new(options: Options) -> Result<Self> {
        let cpus = Pair::choose(options.cpus)?;
        let scratch = Scratch::new()?;
        let mut bench = Self {
            wire: Wire::new()?,
            reader: Reader::compile(&scratch, options.libraries)?,
            scratch,
            way: Way::Sendmmsg,
            time: options.time,
            stray: options.stray,
            shared: options.shared,
            generator_cpu: cpus.generator,
            reader_cpu: cpus.reader,
        };
        if !options.portable {
            bench.try_live_frames();
        }
        Ok(bench)
    }

    fn try_live_frames(&mut self) {
        match self.live_frames_arrive() {
            Ok(()) => self.way = Way::LiveFrames,
            Err(error) => {
                tell!("live frames don't work here, so floods are by sendmmsg: {error:#}\n");
                self.wire.take_no_frames();
            }
        }
    }

    fn live_frames_arrive(&mut self) -> Result<()> {
        self.wire.take_frames(Verdict::Pass)?;
        let before = self.arrived()?.received;
        let sent = self.generate(Load::Flood(
            frame::SHORTEST,
            Way::LiveFrames,
            Duration::from_millis(1),
        ))?;
        let arrived = self.arrived()?.received - before;
        ensure!(
            arrived == sent.frames,
            "of {} frames {arrived} arrived",
            sent.frames
        );
        Ok(())
    }

    /// What the library of one side calls itself; an error when a reader would run on another.
    pub(crate) fn version(&self, side: Side) -> Result<String> {
        let ended = self
            .read(side, Settings::default(), Work::Introduce)?
            .wait()?;
        Ok(reader::told(&ended, side, self.library())?.version)
    }

    /// Starts a reader at the far end, by itself.
    pub(crate) fn read(&self, side: Side, settings: Settings, work: Work) -> Result<Member> {
        self.seat(side, settings, work, Seat::ALONE)
    }

    /// Starts one on the seat that it is given.
    pub(crate) fn seat(
        &self,
        side: Side,
        settings: Settings,
        work: Work,
        seat: Seat,
    ) -> Result<Member> {
        self.reader.start(
            &self.wire,
            (side, settings, work),
            (self.cpu(seat.place), seat.fanout),
            &self.scratch,
        )
    }

    /// The core of a place; a reader that may be anywhere has none.
    pub(crate) fn cpu(&self, place: Core) -> Option<usize> {
        match place {
            Core::Receiving => Some(self.generator_cpu),
            Core::Other => Some(self.reader_cpu),
            Core::Anywhere => None,
        }
    }

    /// The libraries that are compared.
    pub(crate) fn libraries(&self) -> &Libraries {
        self.reader.libraries()
    }

    /// The directory of ours.
    pub(crate) fn library(&self) -> &Path {
        &self.libraries().ours
    }

    /// As many frames of this length as the generator can send.
    pub(crate) fn flood(&self, len: usize) -> Load {
        Load::Flood(len, self.way, self.time)
    }

    /// Starts a generator at the near end.
    pub(crate) fn start_generator(&self, load: Load) -> Result<Member> {
        self.start_generator_for(load, None)
    }

    fn start_generator_for(&self, load: Load, reader: Option<u32>) -> Result<Member> {
        let on = (self.generator_cpu, self.library());
        generator::start(&self.wire, on, (load, reader), &self.scratch)
    }

    /// Runs one from start to end.
    pub(crate) fn generate(&self, load: Load) -> Result<Sent> {
        generator::finish(self.start_generator(load)?)
    }

    /// The same, with the CPU time in nanoseconds that a reader had had at its first frame and at
    /// its last.
    pub(crate) fn generate_for(&self, load: Load, reader: u32) -> Result<(Sent, (u64, u64))> {
        let sent = generator::finish(self.start_generator_for(load, Some(reader))?)?;
        let times = sent.reader_ns;
        Ok((
            sent,
            times.context("the generator did not tell the reader's CPU time")?,
        ))
    }

    /// The two CPUs.
    pub(crate) fn cpus(&self) -> Pair {
        Pair {
            generator: self.generator_cpu,
            reader: self.reader_cpu,
        }
    }

    /// What the device at the far end has counted so far.
    pub(crate) fn arrived(&self) -> Result<Arrived> {
        let counters = self.wire.counters()?;
        Ok(Arrived {
            received: counters.received,
            dropped: counters.receive_dropped,
        })
    }

    /// What is refused when a run was not alone; where others may use the CPUs, nothing.
    pub(crate) fn alone(&self, verdict: Result<(), Refusal>) -> Result<(), Refusal> {
        if self.shared { Ok(()) } else { verdict }
    }

    /// Sends one frame that no generator tells of, if that was asked for.
    pub(crate) fn stray(&self) -> Result<()> {
        if self.stray {
            let frame = frame::single()?;
            Injector::open(self.wire.near())?.send(&frame)?;
        }
        Ok(())
    }
}
