//! Whether live frames leave the device: nobody says when it refuses them, but its counters show
//! it.

use std::collections::VecDeque;
use std::io;

use anyhow::{Error, Result, anyhow, bail};
use fanpcap_linux::netlink::link::{self, Counters};
use fanpcap_linux::wait::clock::{monotonic_ns, sleep_until};

use crate::device::{Device, State, state};

/// As many frames try a device: other traffic moves counters too, but hardly by so many at once.
pub(crate) const PROBES: u64 = 64;

/// What became of the first frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// They left.
    Taken,
    /// They did not.
    Refused,
    /// Counters move as much without them.
    Hidden,
}

/// A device, what it had counted before the first frame, and what it was handed since.
#[derive(Debug)]
pub(crate) struct Watch {
    name: String,
    ifindex: u32,
    before: Counters,
    /// Nanoseconds until its counters surely tell of a frame.
    settle: u64,
    /// Frames that it had been handed at these times.
    handed: VecDeque<(u64, u64)>,
}

impl Watch {
    /// Begins.
    pub(crate) fn start(device: &Device) -> Result<Self> {
        let counters = link::get(device.index).map(|link| link.counters);
        Ok(Self {
            name: device.name.clone(),
            ifindex: device.index,
            before: counters.map_err(|error| gone(&device.name, error))?,
            // What is no hardware counts at once; some drivers of hardware ask it every other
            // second.
            settle: if device.kind.is_empty() { LATE } else { SOON },
            handed: VecDeque::new(),
        })
    }

    /// Waits for the counters to tell of frames that have just been handed over, with so many bytes
    /// together; then waits as long again, in which they should tell of nothing.
    pub(crate) fn first(&self, frames: u64, bytes: u64) -> Result<Shown> {
        let begin = monotonic_ns();
        let mut now = self.counters()?;
        while !accounts(&self.before, &now, frames, bytes) {
            if monotonic_ns() > begin + PATIENCE {
                return Ok(Shown::Refused);
            }
            sleep_until(monotonic_ns() + 1_000_000);
            now = self.counters()?;
        }
        let end = monotonic_ns();
        sleep_until(end + (end - begin).max(1_000_000));
        let others =
            self.counters()?.tx_packets - now.tx_packets.min(self.before.tx_packets + frames);
        Ok(if others > frames / 2 {
            Shown::Hidden
        } else {
            Shown::Taken
        })
    }

    /// Looks at the device after it has been handed `frames` live frames altogether: whether it is
    /// still there, and how many frames of those that it must have counted by now are missing, if
    /// that is most of them.
    pub(crate) fn look(&mut self, frames: u64) -> Result<Option<u64>> {
        let now = self.counters()?;
        let time = monotonic_ns();
        self.handed.push_back((time, frames));
        let mut expected = 0;
        while let Some(&(then, handed)) = self.handed.front() {
            if then + self.settle > time {
                break;
            }
            expected = handed;
            if self
                .handed
                .get(1)
                .is_none_or(|&(next, _)| next + self.settle > time)
            {
                break;
            }
            self.handed.pop_front();
        }
        let told = now.tx_packets.saturating_sub(self.before.tx_packets)
            + now.tx_dropped.saturating_sub(self.before.tx_dropped);
        let missing = expected.saturating_sub(told);
        Ok((expected >= PROBES && missing > expected / 2).then_some(missing))
    }

    /// Whether it is still there and up; the portable way counts what it sends.
    pub(crate) fn counters(&self) -> Result<Counters> {
        let link = link::get(self.ifindex).map_err(|error| gone(&self.name, error))?;
        match state(link.flags) {
            State::Up => Ok(link.counters),
            State::Down => bail!("{} was set down", self.name),
            State::NoCarrier => bail!("{} has no carrier any more", self.name),
        }
    }
}

fn gone(name: &str, error: io::Error) -> Error {
    if error.raw_os_error() == Some(ENODEV) {
        anyhow!("{name} was removed")
    } else {
        takes_none(error)
    }
}

/// Whether counters tell of so many frames and of their bytes. Of what the device dropped it counts
/// no bytes. The device's own error, while sending: an [`io::Error`] behind the words.
pub(crate) fn takes_none(error: io::Error) -> Error {
    let text = format!("the device takes no frames: {error}");
    Error::new(error).context(text)
}

fn accounts(before: &Counters, now: &Counters, frames: u64, bytes: u64) -> bool {
    let since = |now: u64, before: u64| now.saturating_sub(before);
    let dropped = since(now.tx_dropped, before.tx_dropped).min(frames);
    let left = frames - dropped;
    since(now.tx_packets, before.tx_packets) >= left
        && since(now.tx_bytes, before.tx_bytes) >= bytes / frames.max(1) * left
}

/// errno(3): no such device.
const ENODEV: i32 = 19;
const PATIENCE: u64 = 1_000_000_000;
const SOON: u64 = 100_000_000;
const LATE: u64 = 3_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_traffic_does_not_pass_for_frames() {
        let before = Counters::default();
        let told = |tx_packets, tx_bytes, tx_dropped| {
            let now = Counters {
                tx_packets,
                tx_bytes,
                tx_dropped,
                ..before
            };
            accounts(&before, &now, 64, 64 * 1000)
        };
        assert!(told(64, 64_000, 0) && told(70, 65_000, 0));
        // A few others; many short ones; few long ones.
        assert!(!told(5, 500, 0) && !told(200, 18_000, 0) && !told(10, 64_000, 0));
        assert!(told(60, 60_000, 4) && told(0, 0, 64) && !told(0, 0, 60));
    }
}
