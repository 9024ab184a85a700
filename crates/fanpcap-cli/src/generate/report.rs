//! What `fanpcap gen` says: a line a second, and the result.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use fanpcap_gen::{Counted, Peer, Sender, Sent, Way};
use serde::Serialize;

use super::Arguments;

/// The result; its fields are those of the JSON.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The device.
    device: String,
    /// How frames were sent.
    way: Way,
    /// Why not by live frames, if that was not asked for.
    instead: Option<String>,
    /// Frames that were handed to the device.
    sent: u64,
    /// Their bytes, without check sequences.
    bytes: u64,
    /// Time from the first to the last.
    seconds: f64,
    /// CPU time of the sender, in seconds.
    cpu_seconds: f64,
    /// Frames a second.
    pps: f64,
    /// Bits a second, of the frames alone.
    bits_per_second: f64,
    /// Packets that left the device meanwhile, as it counts.
    device_sent: u64,
    /// Packets that it dropped, as it counts.
    device_dropped: u64,
    /// Frames that it counted as neither.
    refused: u64,
    /// The other end of a veth pair.
    peer: Option<Peer>,
}

impl Report {
    /// Puts it together.
    pub(super) fn new(
        arguments: &Arguments,
        sender: &Sender,
        sent: Sent,
        counted: Counted,
    ) -> Self {
        let seconds = sent.nanoseconds as f64 / 1e9;
        let rate = |count: u64| {
            if sent.nanoseconds == 0 {
                0.0
            } else {
                count as f64 / seconds
            }
        };
        Self {
            device: arguments.device.clone(),
            way: sender.way(),
            instead: sender.instead().map(str::to_owned),
            sent: sent.frames,
            bytes: sent.bytes,
            seconds,
            cpu_seconds: sent.cpu_ns as f64 / 1e9,
            pps: rate(sent.frames),
            bits_per_second: rate(sent.bytes) * 8.0,
            device_sent: counted.left,
            device_dropped: counted.dropped,
            refused: counted.refused,
            peer: counted.peer,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
        write!(f, "{} counted {} sent", self.device, self.device_sent)?;
        if self.device_dropped > 0 {
            write!(f, ", {} dropped", self.device_dropped)?;
        }
        if self.refused > 0 {
            write!(f, "; it refused {} frames, which are lost", self.refused)?;
        }
        writeln!(f)?;
        if let Some(peer) = &self.peer {
            write!(f, "its other end {}", peer.name)?;
            if let Some(namespace) = &peer.namespace {
                write!(f, " in {}", namespace.display())?;
            }
            writeln!(
                f,
                " received {}, could not take {}",
                peer.received, peer.dropped
            )?;
        }
        Ok(())
    }
}

/// A line each second, where somebody looks.
#[derive(Debug)]
pub(super) struct Progress {
    wanted: bool,
    /// It is written over, as on a terminal.
    over: bool,
    before: Sent,
}

impl Progress {
    /// On a terminal, or where it is asked for.
    pub(super) fn new(asked: bool) -> Self {
        let over = io::stderr().is_terminal();
        Self {
            wanted: asked || over,
            over,
            before: Sent::default(),
        }
    }

    /// Says what was sent so far, and the rate since the last time.
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
            eprint!("\r\x1b[K{line}");
            let _ = io::stderr().flush();
        } else {
            eprintln!("{line}");
        }
    }

    /// Clears the line.
    pub(super) fn end(&self) {
        if self.over && self.before.frames > 0 {
            eprint!("\r\x1b[K");
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
