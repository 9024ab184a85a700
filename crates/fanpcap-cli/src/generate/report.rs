//! The output of `fanpcap gen`: a line of progress each second, and the result.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, Result};
use fanpcap_gen::{Counted, Faults, Peer, Sender, Sent, Way};
use serde::Serialize;

use super::Arguments;

/// The result, with the fields of the JSON.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    device: String,
    /// How frames were sent.
    way: Way,
    /// Why the portable way was used instead of live frames; `None` if live frames were used or
    /// were not allowed.
    instead: Option<String>,
    /// Frames that were passed to the device.
    sent: u64,
    /// Bytes of these frames, without check sequences.
    bytes: u64,
    /// Time from the first frame to the last.
    seconds: f64,
    /// CPU time of the sender, in seconds.
    cpu_seconds: f64,
    /// Frames a second.
    pps: f64,
    /// Bits of the frames a second, without check sequences.
    bits_per_second: f64,
    /// The requested pace: a rate, or the times of the file.
    asked: Option<String>,
    /// Whether the delay was at most 1 % of the time of sending, or at most [`LATE`].
    kept: bool,
    /// Packets that left the device in the time of sending, by its counters; `None` if the device
    /// is gone.
    device_sent: Option<u64>,
    /// Packets that the device dropped, by its counters.
    device_dropped: Option<u64>,
    /// Frames that the device counted neither as sent nor as dropped.
    refused: Option<u64>,
    /// The other end of a veth pair.
    peer: Option<Peer>,
    /// The problems of the replayed file; `None` if no file was replayed.
    file: Option<Faults>,
}

impl Report {
    /// Creates the report.
    pub(super) fn new(
        arguments: &Arguments,
        sender: &Sender,
        counted: Option<Counted>,
        faults: Faults,
    ) -> Self {
        let sent = sender.sent();
        let seconds = sent.nanoseconds as f64 / 1e9;
        let rate = |count: u64| {
            if sent.nanoseconds == 0 {
                0.0
            } else {
                count as f64 / seconds
            }
        };
        Self {
            device: arguments.device.required().to_owned(),
            way: sender.way(),
            instead: sender.instead().map(str::to_owned),
            sent: sent.frames,
            bytes: sent.bytes,
            seconds,
            cpu_seconds: sent.cpu_ns as f64 / 1e9,
            pps: rate(sent.frames),
            bits_per_second: rate(sent.bytes) * 8.0,
            asked: asked(arguments),
            kept: sent.late_ns <= LATE.max(sent.nanoseconds / 100),
            device_sent: counted.as_ref().map(|counted| counted.left),
            device_dropped: counted.as_ref().map(|counted| counted.dropped),
            refused: counted.as_ref().map(|counted| counted.refused),
            peer: counted.and_then(|counted| counted.peer),
            file: arguments.replay.is_some().then_some(faults),
        }
    }

    /// Whether the device refused or dropped frames.
    pub(super) fn lost(&self) -> bool {
        self.refused.unwrap_or(0) + self.device_dropped.unwrap_or(0) > 0
    }

    /// Prints the report, as a line of JSON or as text.
    pub(super) fn print(&self, json: bool) -> Result<()> {
        let text = if json {
            format!("{}\n", serde_json::to_string(self)?)
        } else {
            self.to_string()
        };
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // It is no error if the reader has closed the pipe.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written.context("writing the result"),
        }
    }
}

/// Delay in nanoseconds up to which the pace counts as kept, even if it is more than 1 % of the
/// time of sending.
const LATE: u64 = 10_000_000;

/// The pace in words.
fn asked(arguments: &Arguments) -> Option<String> {
    let times = |speed: f64| format!("the times of the file, {speed} times as fast");
    let rate = arguments.rate.map(|rate| rate.to_string());
    rate.or(arguments.speed.map(times))
}

/// Reports the problems of a file on standard error.
pub(super) fn complain(path: &Path, faults: &Faults) {
    let path = path.display();
    let mut lines = Vec::new();
    if faults.shortened > 0 {
        let count = faults.shortened;
        lines.push(format!(
            "{path} has only the beginning of {count} packets; the beginning is sent"
        ));
    }
    if faults.skipped > 0 {
        let count = faults.skipped;
        lines.push(format!(
            "{count} packets of {path} are too long for the device and left out"
        ));
    }
    if faults.cut {
        lines.push(format!(
            "{path} ends within a packet; this packet is left out"
        ));
    }
    for line in lines {
        say(&format!("fanpcap gen: {line}\n"));
    }
}

/// Writes to standard error, ignoring errors.
fn say(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.sent == 0 {
            return writeln!(f, "sent no frames");
        }
        if let Some(why) = &self.instead {
            writeln!(f, "no live frames: {why}")?;
        }
        writeln!(
            f,
            "sent {} frames, {} bytes in {:.3} s by {}: {}, {}",
            self.sent,
            self.bytes,
            self.seconds,
            self.way,
            short(self.pps, "pps"),
            short(self.bits_per_second, "bit/s")
        )?;
        if let Some(asked) = self.asked.as_ref().filter(|_| !self.kept) {
            writeln!(
                f,
                "asked {asked}, reached {}, {}: as fast as it goes",
                short(self.pps, "pps"),
                short(self.bits_per_second, "bit/s")
            )?;
        }
        if let Some(left) = self.device_sent {
            write!(f, "{} counted {left} sent", self.device)?;
            let dropped = self.device_dropped.unwrap_or(0);
            if dropped > 0 {
                write!(f, ", {dropped} dropped")?;
            }
            let refused = self.refused.unwrap_or(0);
            if refused > 0 {
                write!(f, "; it refused {refused} frames, which are lost")?;
            }
            writeln!(f)?;
        }
        if let Some(peer) = &self.peer {
            write!(f, "its other end {}", peer.name)?;
            if let Some(namespace) = &peer.namespace {
                write!(f, " in {}", namespace.display())?;
            }
            writeln!(
                f,
                " received {}; {} dropped at the other end",
                peer.received, peer.dropped
            )?;
        }
        Ok(())
    }
}

/// Shows the progress, if wanted.
#[derive(Debug)]
pub(super) struct Progress {
    wanted: bool,
    /// Whether each line overwrites the line before, as on a terminal.
    over: bool,
    before: Sent,
}

impl Progress {
    /// The progress is shown if standard error is a terminal, or if `asked`.
    pub(super) fn new(asked: bool) -> Self {
        let over = io::stderr().is_terminal();
        Self {
            wanted: asked || over,
            over,
            before: Sent::default(),
        }
    }

    /// Prints the number of frames sent so far, and the rate since the last call.
    pub(super) fn tell(&mut self, sent: &Sent) {
        let before = std::mem::replace(&mut self.before, *sent);
        if !self.wanted {
            return;
        }
        let seconds = (sent.nanoseconds - before.nanoseconds).max(1) as f64 / 1e9;
        let packets = (sent.frames - before.frames) as f64 / seconds;
        let bits = (sent.bytes - before.bytes) as f64 * 8.0 / seconds;
        let line = format!(
            "{:.0} s: {} frames, {}, {}",
            sent.nanoseconds as f64 / 1e9,
            sent.frames,
            short(packets, "pps"),
            short(bits, "bit/s")
        );
        if self.over {
            say(&format!("\r\x1b[K{line}"));
        } else {
            say(&format!("{line}\n"));
        }
    }

    /// Clears the line of progress on a terminal.
    pub(super) fn end(&self) {
        if self.over && self.before.frames > 0 {
            say("\r\x1b[K");
        }
    }
}

fn short(rate: f64, unit: &str) -> String {
    let scales = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    match scales.iter().find(|(scale, _)| rate >= *scale) {
        Some((scale, letter)) => format!("{:.3} {letter}{unit}", rate / scale),
        None => format!("{rate:.1} {unit}"),
    }
}
