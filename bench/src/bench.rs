//! The bench: a wire, a generator on one core and a reader on another core. Starts and ends the
//! processes of a run.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Error, Result, ensure};
use fanpcap_linux::packet::inject::Injector;
use fanpcap_linux::wait::clock;
use fanpcap_testbed::{Member, Program, Scratch, await_for};

use crate::generator::{self, Launch, Load, Sent, Way, frame};
use crate::libraries::{Libraries, Side};
use crate::out::tell;
use crate::reader::{self, Core, Reader, Seat, Settings, Work};
use crate::refusal::Refusal;
use crate::topology::Pair;
use crate::verdict::Verdict;
use crate::wire::{Arrived, Wire};

/// Options of a session; the same for all runs.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Duration of a flood.
    pub(crate) time: Duration,
    /// The directory of our library.
    pub(crate) library: PathBuf,
    /// The directory of another build of our library.
    pub(crate) other: Option<PathBuf>,
    /// `PCAP_DRIVER` on our side, if set.
    pub(crate) driver: Option<String>,
    /// Don't try live frames.
    pub(crate) portable: bool,
    /// Accept runs while other processes use the same CPUs.
    pub(crate) shared: bool,
    /// The share of a core that other processes may take in a run that counts.
    pub(crate) foreign: f64,
    /// Send one more frame than the generator reports.
    pub(crate) stray: bool,
    /// The requested CPUs.
    pub(crate) cpus: Option<Pair>,
}

/// What runs need: namespaces, devices, the compiled reader.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) wire: Wire,
    reader: Reader,
    pub(crate) scratch: Scratch,
    stray: bool,
    /// Other processes may use the CPUs during a run.
    pub(crate) shared: bool,
    /// The share of a core that other processes may take in a run that counts.
    pub(crate) foreign: f64,
    /// How the generator sends floods.
    pub(crate) way: Way,
    /// Duration of a flood.
    pub(crate) time: Duration,
    pub(crate) generator_cpu: usize,
    pub(crate) reader_cpu: usize,
}

/// How long to wait at most until the kernel has removed the BPF program of an ended reader from
/// the device.
const LEAVING: Duration = Duration::from_secs(2);

/// How long generators have to get ready, if they must begin at the same time.
const READY: Duration = Duration::from_millis(500);

/// Whether the error means that the device has another XDP program.
fn is_busy(error: &Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::ResourceBusy)
}

impl Bench {
    /// Creates namespaces, devices and the reader, and determines how frames can be sent. The
    /// calling thread must be in a network namespace of its own.
    pub(crate) fn new(options: Options) -> Result<Self> {
        let cpus = Pair::choose(options.cpus)?;
        let scratch = Scratch::new()?;
        let wire = Wire::new()?;
        let steal = format!("steal@{} = yes\n", wire.far());
        let libraries = Libraries {
            ours: options.library,
            other: options.other,
            driver: options.driver,
            steal: scratch.write("steal.conf", &steal)?,
        };
        let mut bench = Self {
            wire,
            reader: Reader::compile(&scratch, libraries)?,
            scratch,
            way: Way::Sendmmsg,
            time: options.time,
            stray: options.stray,
            shared: options.shared,
            foreign: options.foreign,
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
                tell!("live frames don't work here, so floods are sent by sendmmsg: {error:#}\n");
                self.wire.take_no_frames();
            }
        }
    }

    fn live_frames_arrive(&mut self) -> Result<()> {
        self.wire.take_frames(Verdict::Pass)?;
        let before = self.arrived()?.received;
        let sent = self.generate(Load::flood(
            frame::SHORTEST,
            Way::LiveFrames,
            Duration::from_millis(1),
        ))?;
        let arrived = self.arrived()?.received - before;
        ensure!(
            arrived == sent.frames,
            "{} frames were sent, but {arrived} arrived",
            sent.frames
        );
        Ok(())
    }

    /// The version text of one side's library. Fails if a reader would run on another library.
    pub(crate) fn version(&self, side: Side) -> Result<String> {
        let ended = self
            .read(side, Settings::default(), Work::Introduce)?
            .wait()?;
        Ok(reader::told(&ended, side, self.libraries())?.version)
    }

    /// Runs `work` with the far device set up for readers on `side` and for frames sent in this
    /// way. Our XDP engine attaches a BPF program of its own. For other readers, the device takes
    /// live frames only with the bench's BPF program. A device with an XDP program copies each skb,
    /// so for frames that are sent as skbs it has no BPF program.
    pub(crate) fn arranged<T>(
        &self,
        side: Side,
        way: Way,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let attaches = self.libraries().attach_program(side);
        if !attaches && way == self.way {
            return work();
        }
        self.wire.take_no_frames();
        let done = work();
        let restored = self.restore();
        let done = done?;
        restored?;
        Ok(done)
    }

    /// Makes the far device take frames in the bench's usual way again. Waits if the BPF program of
    /// a reader that has ended is still on the device.
    pub(crate) fn restore(&self) -> Result<()> {
        if self.way == Way::Sendmmsg {
            self.wire.take_no_frames();
            return Ok(());
        }
        await_for("the far device to be free", LEAVING, || {
            match self.wire.take_frames(Verdict::Pass) {
                Ok(()) => Ok(Some(())),
                Err(error) if is_busy(&error) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    /// Starts a reader without a group at the far end, on the reader's CPU.
    pub(crate) fn read(&self, side: Side, settings: Settings, work: Work) -> Result<Member> {
        self.seat(side, settings, work, Seat::ALONE)
    }

    /// A reader on a device of the calling thread's namespace, on the reader's CPU.
    pub(crate) fn reader_at(
        &self,
        device: &str,
        side: Side,
        settings: Settings,
        work: Work,
    ) -> Program {
        let what = (side, settings, work);
        self.reader.program(device, what, Some(self.reader_cpu))
    }

    /// Starts a reader at the far end, on the core and in the group that `seat` names.
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
            None,
            &self.scratch,
        )
    }

    /// The CPU of a core; `None` if the reader may run anywhere.
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

    /// The directory of our library.
    pub(crate) fn library(&self) -> &Path {
        &self.libraries().ours
    }

    /// Starts a generator at the near end, on the generator's CPU. If `reader` is given, the
    /// generator also reports that reader's CPU time.
    pub(crate) fn start_generator(&self, load: Load, reader: Option<u32>) -> Result<Member> {
        self.launch(&Launch {
            device: self.wire.near().to_owned(),
            cpu: self.generator_cpu,
            load,
            reader,
            at: None,
        })
    }

    fn launch(&self, launch: &Launch) -> Result<Member> {
        generator::start(self.library(), launch, &self.scratch)
    }

    /// Runs generators that begin at the same time, each on its wire and its CPU, until all have
    /// ended. Returns what each generator has sent, with its CPU.
    pub(crate) fn generate_together<'a>(
        &self,
        places: impl Iterator<Item = (&'a Wire, usize)>,
        load: Load,
    ) -> Result<Vec<(usize, Sent)>> {
        let at = Some(clock::monotonic_ns() + u64::try_from(READY.as_nanos())?);
        let mut generators = Vec::new();
        for (wire, cpu) in places {
            let launch = Launch {
                device: wire.near().to_owned(),
                cpu,
                load,
                reader: None,
                at,
            };
            generators.push((cpu, self.launch(&launch)?));
        }
        let finish = |(cpu, generator)| Ok((cpu, generator::finish(generator)?));
        generators.into_iter().map(finish).collect()
    }

    /// Starts a counting reader with our library at the far end of a wire, with these lines of
    /// pcap.conf. If `place` has no CPU, the reader may run on any.
    pub(crate) fn read_on(
        &self,
        wire: &Wire,
        place: (Option<usize>, Option<(u16, &str)>),
        config: &str,
    ) -> Result<Member> {
        let file = self.scratch.write("placed.conf", config)?;
        let what = (Side::Ours, Settings::default(), Work::Count);
        self.reader
            .start(wire, what, place, Some(&file), &self.scratch)
    }

    /// Runs a generator to its end.
    pub(crate) fn generate(&self, load: Load) -> Result<Sent> {
        generator::finish(self.start_generator(load, None)?)
    }

    /// Runs a generator to its end. Also returns the reader's CPU time in nanoseconds at the first
    /// and at the last frame.
    pub(crate) fn generate_for(&self, load: Load, reader: u32) -> Result<(Sent, (u64, u64))> {
        let sent = generator::finish(self.start_generator(load, Some(reader))?)?;
        let times = sent.reader_ns;
        let times = times.context("the generator's report lacks the reader's CPU time")?;
        Ok((sent, times))
    }

    /// The two CPUs.
    pub(crate) fn cpus(&self) -> Pair {
        Pair {
            generator: self.generator_cpu,
            reader: self.reader_cpu,
        }
    }

    /// The far device's counters so far.
    pub(crate) fn arrived(&self) -> Result<Arrived> {
        self.wire.arrived()
    }

    /// Returns `verdict`, which refuses a run if other processes used the CPUs. If the options
    /// allow that other processes use them, returns `Ok` instead.
    pub(crate) fn alone(&self, verdict: Result<(), Refusal>) -> Result<(), Refusal> {
        if self.shared { Ok(()) } else { verdict }
    }

    /// Sends one frame that no generator reports, if the options ask for it.
    pub(crate) fn stray(&self) -> Result<()> {
        if self.stray {
            let frame = frame::single()?;
            Injector::open(self.wire.near())?.send(&frame)?;
        }
        Ok(())
    }
}
