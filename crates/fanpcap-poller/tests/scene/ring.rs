//! Devices of DPDK in the place of ordinary memory: a device `net_ring` gives back what is sent on
//! it. So the packets of a test are in DPDK's buffers, and come by the plugin.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "each test uses a part")]
#![allow(unreachable_pub, reason = "a module of tests")]

use anyhow::{Context, Result};
use fanpcap_dpdk::{DeviceName, Eal, EalOptions, Plugin, PortOptions};
use fanpcap_poller::dpdk::{self, DeviceSender, DpdkSource};
use fanpcap_poller::{Burst, Source, SourceCounts, SourceError};
use fanpcap_testkit::await_for::await_so;
use fanpcap_testkit::dpdk as testkit;
use fanpcap_testkit::{Scratch, cpus};
use std::io;
use std::os::fd::BorrowedFd;

/// Whether this test program's packets come by DPDK.
pub const IS_USED: bool = matches!(
    env!("CARGO_CRATE_NAME").as_bytes(),
    [b'd', b'p', b'd', b'k', b'_', ..]
);

/// Its packets are in the buffers that frames are sent from, so its own are few.
const OPTIONS: PortOptions = PortOptions {
    queues: 1,
    descriptors: 512,
    buffers: 511,
    cache: 32,
    mtu: 9216,
};

/// Starts DPDK, with memory for all devices of a test program.
fn start() -> Result<Eal> {
    let scratch = Scratch::new()?;
    let options = EalOptions {
        ordinary_mib: Some(384),
        has_pci: false,
        cpu: *cpus()?.first().context("a CPU")?,
        prefix: format!("fanpcap-test-{}", std::process::id()),
        more: Vec::new(),
    };
    Ok(Plugin::load(&testkit::plugin(&scratch)?)?.begin(&options)?)
}

/// A device, and the number of its queue.
pub struct Ring {
    source: DpdkSource,
    number: u16,
}

impl Ring {
    /// A new device. `None` if there is no DPDK: the test counts as skipped then.
    pub fn open(number: u16) -> Option<(Self, Ends)> {
        if !testkit::is_here() {
            return None;
        }
        let eal = testkit::once_in_process(|| start().unwrap());
        let name = format!("net_ring{}", testkit::new_number());
        let name = DeviceName::parse(&name).unwrap();
        let mut opened = dpdk::open_with(eal, &name, OPTIONS).unwrap();
        let source = opened.sources.remove(0);
        Some((Self { source, number }, Ends(opened.sender)))
    }
}

/// Where a test sends the frames of a device.
#[derive(Clone)]
pub struct Ends(DeviceSender);

impl Ends {
    /// Sends a frame. The device has room for 1023 frames.
    pub fn send(&self, frame: &[u8]) {
        await_so("room in the device", || self.0.send(frame).unwrap());
    }
}

impl Source for Ring {
    fn burst<'s>(&'s mut self, burst: &mut Burst<'s>) -> Result<(), SourceError> {
        self.source.burst(burst)
    }

    fn has_filled(&self, quarters: u8) -> bool {
        self.source.has_filled(quarters)
    }

    fn release(&mut self) {
        self.source.release();
    }

    fn check(&mut self) -> Result<(), SourceError> {
        self.source.check()
    }

    fn waits_on(&self) -> Option<BorrowedFd<'_>> {
        self.source.waits_on()
    }

    fn begin_wait(&mut self) -> bool {
        self.source.begin_wait()
    }

    fn end_wait(&mut self) {
        self.source.end_wait();
    }

    fn transmit(&mut self, _: &[u8]) -> io::Result<bool> {
        Ok(false)
    }

    fn queue(&self) -> u16 {
        self.number
    }

    fn counts(&mut self) -> SourceCounts {
        self.source.counts()
    }
}
