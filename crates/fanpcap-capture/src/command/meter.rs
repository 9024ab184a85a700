//! The device's counters since the start, each reading with its time.

use anyhow::Result;
use fanpcap_linux::wait::clock;

use super::link::{self, Link};

/// Reads a device's counters.
#[derive(Debug)]
pub(super) struct Meter {
    link: Link,
    start: Reading,
}

/// Counters with the time of their reading.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    counters: link::Counters,
    at_ns: u64,
}

impl Meter {
    /// Starts counting; `None` for a device without counters.
    ///
    /// # Errors
    /// The kernel refuses the request.
    pub(super) fn new(device: Option<&str>) -> Result<Option<Self>> {
        let Some(link) = device.and_then(Link::of) else {
            return Ok(None);
        };
        let start = read(&link)?;
        Ok(start.map(|start| Self { link, start }))
    }

    /// Reads the counters; `None` if the device is gone.
    ///
    /// # Errors
    /// The kernel refuses the request.
    pub(super) fn read(&self) -> Result<Option<Reading>> {
        read(&self.link)
    }

    /// The counters since the start; `None` if the device is gone.
    ///
    /// # Errors
    /// The kernel refuses the request.
    pub(super) fn since_start(&self) -> Result<Option<link::Counters>> {
        let now = self.read()?;
        Ok(now.map(|now| now.counters.since(self.start.counters)))
    }
}

impl Reading {
    /// The difference to `before`, and the time between the readings in nanoseconds.
    pub(super) fn since(self, before: Self) -> (link::Counters, u64) {
        let counters = self.counters.since(before.counters);
        (counters, self.at_ns.saturating_sub(before.at_ns))
    }
}

fn read(link: &Link) -> Result<Option<Reading>> {
    let at_ns = clock::monotonic_ns();
    let counters = link.counters()?;
    Ok(counters.map(|counters| Reading { counters, at_ns }))
}
