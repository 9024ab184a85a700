//! The generator: a process that sends on one device from one core, and its report.

pub(crate) mod frame;
mod sending;

use std::env;
use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use fanpcap_testbed::{Member, Program, Scratch};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::priority;
use crate::refusal::{Refusal, at_once};
use crate::wire::Wire;

/// What to send; the arguments of the hidden subcommand `generate`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Traffic {
    /// The device
    #[arg(long)]
    device: String,
    /// The CPU to stay on
    #[arg(long)]
    cpu: usize,
    /// Length of each frame, without its check sequence
    #[arg(long, default_value_t = frame::SHORTEST)]
    len: usize,
    /// As many frames as possible for so many milliseconds
    #[arg(long, conflicts_with = "probes")]
    milliseconds: Option<u64>,
    /// So many frames per second, not as many as possible
    #[arg(long)]
    rate: Option<NonZeroU64>,
    /// By sendmmsg instead of live frames
    #[arg(long)]
    portable: bool,
    /// So many single frames that carry the time, evenly spaced but for a jitter
    #[arg(long)]
    probes: Option<u64>,
    /// Microseconds between two probes
    #[arg(long, default_value_t = 2000)]
    interval: u64,
    /// A process whose CPU time is told as of the first frame and of the last
    #[arg(long)]
    reader: Option<u32>,
    /// Nanoseconds of `CLOCK_MONOTONIC` before which no frame is sent
    #[arg(long)]
    at: Option<u64>,
}

/// The generator's report.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Sent {
    /// Frames.
    pub(crate) frames: u64,
    /// `CLOCK_MONOTONIC` just before the first frame.
    pub(crate) begin: u64,
    /// From the first to the last frame.
    pub(crate) nanoseconds: u64,
    /// CPU time between the first and the last frame.
    pub(crate) cpu_ns: u64,
    /// CPU time of the process.
    pub(crate) process_cpu_ns: u64,
    /// The reader's CPU time just before the first frame and just before the last.
    pub(crate) reader_ns: Option<(u64, u64)>,
}

impl Sent {
    /// Seconds from the first to the last frame.
    pub(crate) fn seconds(&self) -> f64 {
        self.nanoseconds as f64 / 1e9
    }

    /// Frames per second.
    pub(crate) fn pps(&self) -> f64 {
        self.frames as f64 / self.seconds()
    }

    /// What generators have sent that sent at the same time.
    ///
    /// # Errors
    /// They did not.
    pub(crate) fn together(all: &[Self]) -> Result<Self, Refusal> {
        let longest = all.iter().map(|sent| sent.nanoseconds).max().unwrap_or(0);
        let begin = all.iter().map(|sent| sent.begin).min().unwrap_or(0);
        let ends = all.iter().map(|sent| sent.begin + sent.nanoseconds);
        let nanoseconds = ends.max().unwrap_or(0) - begin;
        let sum = |count: fn(&Self) -> u64| all.iter().map(count).sum();
        at_once(longest as f64 / nanoseconds as f64)?;
        Ok(Self {
            frames: sum(|sent| sent.frames),
            begin,
            nanoseconds,
            cpu_ns: sum(|sent| sent.cpu_ns),
            process_cpu_ns: sum(|sent| sent.process_cpu_ns),
            reader_ns: None,
        })
    }

    /// The generator's share of its core.
    pub(crate) fn share(&self) -> f64 {
        self.cpu_ns as f64 / self.nanoseconds as f64
    }
}

/// How frames get from user space to the device.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    /// A BPF program sends them inside the kernel: much faster than any reader.
    LiveFrames,
    /// sendmmsg(2) past the queueing discipline: works everywhere, slower than the readers.
    Sendmmsg,
}

/// What the generator sends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// Frames of this length at full speed, for this time.
    Flood(usize, Way, Duration),
    /// Frames of a length at a rate, for a time.
    Paced {
        len: usize,
        pps: u64,
        way: Way,
        time: Duration,
    },
    /// A number of probes at this interval.
    Probes(u64, Duration),
}

impl Load {
    /// How the frames are sent; probes are single skbs.
    pub(crate) fn way(self) -> Option<Way> {
        match self {
            Self::Flood(_, way, _) | Self::Paced { way, .. } => Some(way),
            Self::Probes(..) => None,
        }
    }
}

/// A generator's process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch {
    pub(crate) cpu: usize,
    pub(crate) load: Load,
    /// The reader whose CPU time it tells.
    pub(crate) reader: Option<u32>,
    /// `CLOCK_MONOTONIC` before which it sends no frame.
    pub(crate) at: Option<u64>,
}

/// Starts a generator on the wire's near end.
pub(crate) fn start(
    wire: &Wire,
    library: &Path,
    launch: Launch,
    scratch: &Scratch,
) -> Result<Member> {
    let Launch {
        cpu,
        load,
        reader,
        at,
    } = launch;
    let own = env::current_exe().context("this program's file")?;
    let mut program = priority::program(library, own, "", None)
        .args(["generate", "--device", wire.near()])
        .args(["--cpu", &cpu.to_string()]);
    let frames = |program: Program, len: usize, way, time: Duration| {
        program
            .args(["--len", &len.to_string()])
            .args(["--milliseconds", &time.as_millis().to_string()])
            .args((way == Way::Sendmmsg).then_some("--portable"))
    };
    program = match load {
        Load::Flood(len, way, time) => frames(program, len, way, time),
        Load::Paced {
            len,
            pps,
            way,
            time,
        } => frames(program, len, way, time).args(["--rate", &pps.to_string()]),
        Load::Probes(count, interval) => program
            .args(["--probes", &count.to_string()])
            .args(["--interval", &interval.as_micros().to_string()]),
    };
    let reader = reader.map(|pid| ["--reader".to_owned(), pid.to_string()]);
    let at = at.map(|at| ["--at".to_owned(), at.to_string()]);
    let program = program.args(reader.into_iter().chain(at).flatten());
    program.start(scratch)
}

/// Waits for the generator's end and returns its report.
pub(crate) fn finish(generator: Member) -> Result<Sent> {
    told(generator, "the generator")
}

/// The report of one of the bench's own processes.
pub(crate) fn told<T: DeserializeOwned>(process: Member, name: &str) -> Result<T> {
    let ended = process.wait()?;
    ensure!(ended.status.success(), "{name}: {}", ended.said.trim());
    serde_json::from_str(&ended.said).with_context(|| format!("{name} said {:?}", ended.said))
}

/// The process's main function.
pub(crate) fn generate(traffic: &Traffic) -> Result<Sent> {
    fanpcap_linux::process::cpu::pin(traffic.cpu)
        .with_context(|| format!("staying on CPU {}", traffic.cpu))?;
    match (traffic.milliseconds, traffic.probes) {
        (_, Some(count)) => sending::probes(traffic, count),
        (milliseconds, None) => {
            let time = Duration::from_millis(milliseconds.unwrap_or(1000));
            sending::frames(traffic, time)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use fanpcap_testbed::{Program, netns};

    use super::*;
    use crate::verdict::Verdict;

    #[test]
    fn what_is_sent_together_is_summed_and_what_is_not_is_refused() {
        let sent = |begin, nanoseconds| Sent {
            frames: 1_000,
            begin,
            nanoseconds,
            cpu_ns: 10,
            process_cpu_ns: 20,
            reader_ns: None,
        };
        let both = Sent::together(&[sent(5_000, 1_000_000), sent(9_000, 1_000_000)]).unwrap();
        assert_eq!((both.frames, both.begin, both.cpu_ns), (2_000, 5_000, 20));
        assert_eq!(both.nanoseconds, 1_004_000);
        let apart = Sent::together(&[sent(5_000, 1_000_000), sent(600_000, 1_000_000)]);
        assert!(matches!(apart, Err(Refusal::Apart(share)) if share < 0.7));
    }

    const LEAST: u64 = 16_384;

    /// Captures [`LEAST`] frames or more of `way`: every flow must occur, and tcpdump must accept
    /// all checksums.
    fn frames_are_well_made(way: Way, len: usize) -> Result<()> {
        let wire = Wire::new()?;
        if way == Way::LiveFrames {
            wire.take_frames(Verdict::Pass)?;
        }
        let scratch = Scratch::new()?;
        let file = scratch.file("capture");
        let tcpdump = Program::tcpdump(wire.far(), file.clone())?;
        let tcpdump = wire.at_far(|| tcpdump.start(&scratch))?;
        let traffic = |milliseconds| Traffic {
            device: wire.near().to_owned(),
            cpu: 0,
            len,
            milliseconds: Some(milliseconds),
            rate: None,
            portable: way == Way::Sendmmsg,
            probes: None,
            interval: 0,
            reader: None,
            at: None,
        };
        let (mut frames, mut milliseconds) = (0, 40);
        loop {
            let sent = generate(&traffic(milliseconds))?.frames;
            frames += sent;
            if sent >= LEAST {
                break;
            }
            // The machine has other work.
            milliseconds *= 2;
        }
        fanpcap_testbed::member::wait_for_packets(
            std::slice::from_ref(&tcpdump),
            usize::try_from(frames)?,
        )?;
        let capture = tcpdump.stop()?.capture()?;
        assert_eq!(capture.flows().len(), usize::try_from(frame::FLOWS)?);
        let read = Command::new("tcpdump").arg("-nvr").arg(&file).output()?;
        let text = String::from_utf8_lossy(&read.stdout);
        assert!(text.contains("UDP") && !text.contains("bad cksum"));
        Ok(())
    }

    #[test]
    #[ignore = "needs root: namespaces, eBPF"]
    fn live_frames_are_well_made() {
        // The last bytes of the second length are written one by one.
        for len in [frame::SHORTEST, 63] {
            netns::within_new(|| frames_are_well_made(Way::LiveFrames, len)).unwrap();
        }
    }

    #[test]
    #[ignore = "needs root: namespaces, packet sockets"]
    fn frames_by_sendmmsg_are_well_made() {
        netns::within_new(|| frames_are_well_made(Way::Sendmmsg, frame::SHORTEST)).unwrap();
    }
}
