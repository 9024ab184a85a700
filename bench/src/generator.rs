//! The generator, a process that sends on one device from one core, and the generator's report.

pub(crate) mod frame;
mod sending;

use std::env;
use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_testbed::{Member, Scratch};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::priority;
use crate::refusal::{Refusal, at_once};

/// The generator's report.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Sent {
    /// Number of frames.
    pub(crate) frames: u64,
    /// The time by `CLOCK_MONOTONIC` just before the first frame.
    pub(crate) begin: u64,
    /// Time from the first to the last frame.
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

    /// The sum of the reports of several generators that sent at the same time.
    ///
    /// # Errors
    /// The generators did not send at the same time.
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
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    /// A BPF program sends the frames inside the kernel. This is much faster than any reader.
    LiveFrames,
    /// sendmmsg(2) sends the frames past the queueing discipline. This works everywhere, but is
    /// slower than the readers.
    Sendmmsg,
}

/// What the generator sends.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) enum Load {
    /// Frames of one length for a limited time: at a rate or, if `pps` is `None`, as many as
    /// possible.
    Frames {
        len: usize,
        pps: Option<NonZeroU64>,
        way: Way,
        time: Duration,
    },
    /// This many single frames that carry the time, at this interval plus or minus a jitter.
    Probes(u64, Duration),
}

impl Load {
    /// Frames of this length at full speed, for this time.
    pub(crate) fn flood(len: usize, way: Way, time: Duration) -> Self {
        Self::Frames {
            len,
            pps: None,
            way,
            time,
        }
    }

    /// How the frames are sent; `None` for probes, which are single skbs.
    pub(crate) fn way(self) -> Option<Way> {
        match self {
            Self::Frames { way, .. } => Some(way),
            Self::Probes(..) => None,
        }
    }
}

/// What a generator's process has to do. As JSON, it is the argument of the hidden subcommand
/// `generate`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Launch {
    /// The device to send on.
    pub(crate) device: String,
    /// The CPU to stay on.
    pub(crate) cpu: usize,
    pub(crate) load: Load,
    /// The reader whose CPU time the generator reports.
    pub(crate) reader: Option<u32>,
    /// The time by `CLOCK_MONOTONIC` before which the generator sends no frame.
    pub(crate) at: Option<u64>,
}

/// Starts a generator.
pub(crate) fn start(library: &Path, launch: &Launch, scratch: &Scratch) -> Result<Member> {
    let own = env::current_exe().context("this program's file")?;
    let program = priority::program(library, own, "", None);
    let launch = serde_json::to_string(launch)?;
    program.args(["generate", &launch]).start(scratch)
}

/// Waits for the generator's end and returns its report.
pub(crate) fn finish(generator: Member) -> Result<Sent> {
    told(generator, "the generator")
}

/// The report of one of the bench's own processes.
pub(crate) fn told<T: DeserializeOwned>(process: Member, name: &str) -> Result<T> {
    let ended = process.wait()?;
    ensure!(ended.status.success(), "{name}: {}", ended.said.trim());
    serde_json::from_str(&ended.said).with_context(|| format!("{name} printed {:?}", ended.said))
}

/// The process's main function.
pub(crate) fn generate(launch: &Launch) -> Result<Sent> {
    fanpcap_linux::process::cpu::pin(launch.cpu)
        .with_context(|| format!("staying on CPU {}", launch.cpu))?;
    match launch.load {
        Load::Frames {
            len,
            pps,
            way,
            time,
        } => sending::frames(launch, len, (pps, way, time)),
        Load::Probes(count, interval) => sending::probes(&launch.device, count, interval),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use fanpcap_testbed::{Program, netns};

    use super::*;
    use crate::verdict::Verdict;
    use crate::wire::Wire;

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
        let launch = |milliseconds| Launch {
            device: wire.near().to_owned(),
            cpu: 0,
            load: Load::flood(len, way, Duration::from_millis(milliseconds)),
            reader: None,
            at: None,
        };
        let (mut frames, mut milliseconds) = (0, 40);
        loop {
            let sent = generate(&launch(milliseconds))?.frames;
            frames += sent;
            if sent >= LEAST {
                break;
            }
            // The machine had other work, so send for a longer time.
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
