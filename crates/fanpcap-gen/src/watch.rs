//! Checks by a device's counters whether live frames leave the device. A device that refuses live
//! frames reports no error.

use std::collections::VecDeque;
use std::io;

use anyhow::{Error, Result, anyhow, bail};
use fanpcap_linux::netlink::link::{self, Counters};
use fanpcap_linux::wait::clock::{monotonic_ns, sleep_until};

use crate::device::{Device, State, state};

/// Number of frames for a trial. Other traffic changes the counters too, but rarely by this many at
/// a time.
pub(crate) const PROBES: u64 = 64;

/// Result of the trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// The frames left the device.
    Taken,
    /// The device refused the frames.
    Refused,
    /// Other traffic changes the counters by so much that they do not show the result.
    Hidden,
}

/// A device, its counters before the first frame, and the frames passed to it since.
#[derive(Debug)]
pub(crate) struct Watch {
    name: String,
    ifindex: u32,
    before: Counters,
    /// Nanoseconds until the counters include a sent frame.
    settle: u64,
    /// Times, each with the number of frames passed to the device until then.
    handed: VecDeque<(u64, u64)>,
}

impl Watch {
    /// Reads the device's counters.
    pub(crate) fn start(device: &Device) -> Result<Self> {
        let counters = link::get(device.index).map(|link| link.counters);
        Ok(Self {
            name: device.name.clone(),
            ifindex: device.index,
            before: counters.map_err(|error| gone(&device.name, error))?,
            // Virtual devices count immediately. Some drivers read their hardware's counters only
            // every other second.
            settle: if device.kind.is_empty() { LATE } else { SOON },
            handed: VecDeque::new(),
        })
    }

    /// Waits until the counters include the frames just passed to the device, `bytes` bytes
    /// together. Then waits for the same time again, in which the counters should not change.
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

    /// Checks the device after `frames` live frames in all. Fails if the device is gone. If the
    /// device's counters lack most of the frames that they should already include, returns the
    /// number of missing frames.
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

    /// The counters. Fails if the device is gone or down. For the portable way, only this failure
    /// matters, because that way counts its own frames.
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

/// The error of a device that accepts no frames. Its source is `error`.
pub(crate) fn takes_none(error: io::Error) -> Error {
    let text = format!("the device takes no frames: {error}");
    Error::new(error).context(text)
}

/// Whether the counters include this many frames and their bytes. A device does not count the bytes
/// of frames that it dropped.
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
        // A few other packets; many short packets; few long packets.
        assert!(!told(5, 500, 0) && !told(200, 18_000, 0) && !told(10, 64_000, 0));
        assert!(told(60, 60_000, 4) && told(0, 0, 64) && !told(0, 0, 60));
    }
}
