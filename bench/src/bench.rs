//! The bench: a wire, a generator and a reader on a core each, and one run of them.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::library::library_dir;
use fanpcap_testkit::{Injector, Member, Scratch, cpus};

use crate::figure::{Figure, Sample};
use crate::generator::{self, Load, Sent, Way, frame};
use crate::reader::{self, Reader, Settings, Side, Work};
use crate::refusal::Refusal;
use crate::wire::Wire;
use crate::{flood, probes};

/// What one run measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Measure {
    /// Frames of a length at maximum rate, into a reader with these settings.
    Flood(usize, Settings),
    /// Single packets at a slow rate.
    Latency(Settings),
    /// Handles opened one after another.
    Open(Settings),
    /// The staged library's file.
    Size,
}

impl Measure {
    /// For people.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Flood(len, settings) => format!("{len} bytes, {}", settings.name()),
            Self::Latency(settings) => format!("single packets, {}", settings.name()),
            Self::Open(settings) => format!("opening, {}", settings.name()),
            Self::Size => "the library".to_owned(),
        }
    }
}

/// How to go about it; the same for all runs.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// How long a flood lasts.
    pub(crate) time: Duration,
    /// `PCAP_DRIVER` on our side, if any.
    pub(crate) driver: Option<String>,
    /// Don't try live frames.
    pub(crate) portable: bool,
    /// Accept runs while others use the same CPUs.
    pub(crate) shared: bool,
    /// Send one more frame than the generator tells.
    pub(crate) stray: bool,
}

/// Everything that runs need, once made.
#[derive(Debug)]
pub(crate) struct Bench {
    wire: Wire,
    reader: Reader,
    scratch: Scratch,
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
        let cpus = cpus()?;
        let (Some(&generator_cpu), Some(&reader_cpu)) = (cpus.first(), cpus.get(1)) else {
            anyhow::bail!("this needs two CPUs, for the generator and the reader; here is one");
        };
        let scratch = Scratch::new()?;
        let mut bench = Self {
            wire: Wire::new()?,
            reader: Reader::compile(&scratch, reader_cpu, options.driver)?,
            scratch,
            way: Way::Sendmmsg,
            time: options.time,
            stray: options.stray,
            shared: options.shared,
            generator_cpu,
            reader_cpu,
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
                println!("live frames don't work here, so floods are by sendmmsg: {error:#}\n");
                self.wire.take_no_frames();
            }
        }
    }

    fn live_frames_arrive(&mut self) -> Result<()> {
        self.wire.take_frames()?;
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

    /// One run on one side, or why it does not count.
    pub(crate) fn run(&self, measure: Measure, side: Side) -> Result<Result<Sample, Refusal>> {
        match measure {
            Measure::Flood(len, settings) => flood::run(self, len, settings, side),
            Measure::Latency(settings) => probes::latency(self, settings, side),
            Measure::Open(settings) => probes::open(self, settings, side).map(Ok),
            Measure::Size => size(side).map(Ok),
        }
    }

    /// What the library of one side calls itself; an error when a reader would run on another.
    pub(crate) fn version(&self, side: Side) -> Result<String> {
        let ended = self
            .read(side, Settings::default(), Work::Introduce)?
            .wait()?;
        Ok(reader::told(&ended, side)?.version)
    }

    /// Starts a reader at the far end.
    pub(crate) fn read(&self, side: Side, settings: Settings, work: Work) -> Result<Member> {
        self.reader
            .start(&self.wire, side, settings, work, &self.scratch)
    }

    /// Starts a generator at the near end.
    pub(crate) fn start_generator(&self, load: Load) -> Result<Member> {
        generator::start(&self.wire, self.generator_cpu, load, &self.scratch)
    }

    /// Runs one from start to end.
    pub(crate) fn generate(&self, load: Load) -> Result<Sent> {
        generator::finish(self.start_generator(load)?)
    }

    /// What the device at the far end has counted so far.
    pub(crate) fn arrived(&self) -> Result<Arrived> {
        let counters = self.wire.counters()?;
        Ok(Arrived {
            received: counters.received,
            dropped: counters.receive_dropped,
        })
    }

    /// Sends one frame that no generator tells of, if that was asked for.
    pub(crate) fn stray(&self) -> Result<()> {
        if self.stray {
            let frame = frame::template(frame::SHORTEST)?;
            Injector::open(self.wire.near())?.send(&frame)?;
        }
        Ok(())
    }
}

fn size(side: Side) -> Result<Sample> {
    let file = match side {
        Side::Ours => library_dir()?.join("libpcap.so.0.8"),
        Side::System => return Ok(Sample::new()),
    };
    let length = fs::metadata(&file)
        .with_context(|| format!("the size of {}", file.display()))?
        .len();
    Ok(Sample::from([(Figure::SizeMb, length as f64 / 1e6)]))
}
