//! A poller at the wire's far end, in a process of the command `fanpcap`, and its counters.

use std::io;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fanpcap_linux::process::pidfd::Process;
use fanpcap_testbed::Member;

use crate::bench::Bench;
use crate::cores::Occupant;
use crate::cpu;
use crate::libraries::Source;
use crate::priority;

/// What a poller prints when it serves its device.
const READY: &str = "fanpcap: serving";

/// How long a poller may take to end.
const LIMIT: Duration = Duration::from_secs(10);

/// A poller with its default settings: it sleeps while no packets come. If there is a generator,
/// the poller shares the reader's core, because the generator leaves no time of its own core.
#[derive(Debug)]
pub(crate) struct Poller {
    place: String,
    cpu: usize,
    /// `None` after the end.
    process: Option<Member>,
    /// CPU time of the process before the first frame.
    before: Duration,
}

/// The counters of a poller at its end, summed over its receive queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PollerReport {
    /// Packets that came from the device, including the dropped packets.
    pub(crate) received: u64,
    /// Packets that the kernel dropped because the poller did not take them in time.
    pub(crate) dropped: u64,
    /// CPU time of all threads since [`Poller::begin`].
    pub(crate) cpu: Duration,
}

impl Poller {
    /// Starts a poller, and waits until it serves the device.
    pub(crate) fn start(bench: &Bench, source: Source) -> Result<Self> {
        let place = source.place(bench.wire.far());
        let arguments = vec![place.clone()];
        Self::launch(bench, place, bench.reader_cpu, arguments)
    }

    /// Starts a poller of a device of DPDK that leaves its buffers as they are, on the core of
    /// generators. The poller fills the buffers with frames of this length.
    pub(crate) fn of_buffers(bench: &Bench, device: &str, len: u16) -> Result<Self> {
        let place = Source::Dpdk.place(device);
        let fill = format!("--fill={len}");
        let arguments = vec![format!("{place},size={len}"), "--no-huge".to_owned(), fill];
        Self::launch(bench, place, bench.generator_cpu, arguments)
    }

    fn launch(bench: &Bench, place: String, cpu: usize, arguments: Vec<String>) -> Result<Self> {
        let command = bench.libraries().command();
        let command = command.context("no command fanpcap beside our library")?;
        let on = cpu.to_string();
        let program = priority::program(bench.library(), command, READY, Some(&on));
        let program = program.arg("poller").args(arguments);
        let process = bench.wire.at_far(|| program.spawn(&bench.scratch))?;
        let mut poller = Self {
            place,
            cpu,
            process: Some(process),
            before: Duration::ZERO,
        };
        // From here on, the poller ends by itself also if this wait fails.
        let process = poller.process.as_mut().context("no process")?;
        process.wait_until_says(READY)?;
        Ok(poller)
    }

    /// The process, for the watch over the cores.
    pub(crate) fn occupant(&self) -> Option<Occupant> {
        let process = self.process.as_ref()?;
        Some(Occupant {
            pid: process.pid(),
            cpu: Some(self.cpu),
        })
    }

    /// Counts the CPU time from now on.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.before = self.time()?;
        Ok(())
    }

    /// CPU time of all threads since [`Poller::begin`].
    pub(crate) fn used(&self) -> Result<Duration> {
        Ok(self.time()?.saturating_sub(self.before))
    }

    /// CPU time of all threads so far.
    fn time(&self) -> Result<Duration> {
        let process = self.process.as_ref().context("the poller has ended")?;
        cpu::of_all_threads(process.pid())
    }

    /// Ends the poller. At this point its members have ended, so they have read all packets.
    pub(crate) fn end(mut self) -> Result<PollerReport> {
        let cpu = self.used()?;
        let process = self.process.take().context("the poller has ended")?;
        stop(&process)?;
        let ended = process.wait()?;
        let (status, said) = (ended.status, ended.said);
        ensure!(status.success(), "the poller ended ({status}):\n{said}");
        let (received, dropped) = counts(&said, &self.place)?;
        Ok(PollerReport {
            received,
            dropped,
            cpu,
        })
    }
}

impl Drop for Poller {
    /// Lets the poller end by itself, so that it leaves no files in /run.
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            // The run has failed already, by another error.
            let _ = stop(&process);
        }
    }
}

/// Ends a poller by a signal. Waits also if a signal has asked the bench to end: a poller that was
/// killed would leave its files.
fn stop(process: &Member) -> Result<()> {
    let watched = Process::open(process.pid()).context("the poller's process")?;
    process.signal("TERM")?;
    loop {
        match watched.ends_within(Some(LIMIT)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            ended => {
                ensure!(ended?, "the poller does not end");
                return Ok(());
            }
        }
    }
}

/// The received and dropped packets in a poller's summary, summed over the receive queues of the
/// device. A line has the device, the queue, and the two counters.
fn counts(said: &str, place: &str) -> Result<(u64, u64)> {
    let mut sum = None;
    for line in said.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [of, _queue, received, dropped] = words[..] {
            if of == place {
                let (before, lost) = sum.unwrap_or((0, 0));
                let number = |text: &str| text.parse::<u64>().context("a poller's counter");
                sum = Some((before + number(received)?, lost + number(dropped)?));
            }
        }
    }
    match sum {
        Some(sum) => Ok(sum),
        None => bail!("the poller's output has no counters of {place}:\n{said}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
fanpcap: serving afxdp:far (the kernel copies) on /run/x/afxdp:far: 2 queues, CPUs: none
after 1.042 s:
device     queue  received  dropped
afxdp:far      0      1000       30
afxdp:far      1        20        4
total                 1020       34
afxdp:far, groups: offered 986 = in rings 986 + dropped 0
";

    #[test]
    fn the_summary_of_all_queues_is_read() {
        assert_eq!(counts(SAID, "afxdp:far").unwrap(), (1020, 34));
        let error = counts(SAID, "afxdp:near").unwrap_err();
        assert!(error.to_string().contains("no counters of afxdp:near"));
        assert!(counts("afxdp:far 0 many 0", "afxdp:far").is_err());
    }
}
