//! Two network namespaces joined by a veth pair: the generator's end and the reader's.

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process;

use anyhow::{Context, Result};
use fanpcap_linux::bpf::{Attached, Hook};
use fanpcap_linux::interface;
use fanpcap_testkit::netns::{current, enter, enter_quiet};
use fanpcap_testkit::veth::{self, Counters, Veth, ip};

use crate::verdict::Verdict;

/// The generator's device, and the reader's.
const NEAR: &str = "fpbnear";
const FAR: &str = "fpbfar";

/// One queue for each working CPU, so that none is shared.
pub(crate) const QUEUES: usize = 2;

/// The wire. One thread creates, uses and drops it, and stays in the near namespace. The namespaces
/// end with that thread and its processes.
#[derive(Debug)]
pub(crate) struct Wire {
    near: OwnedFd,
    far: OwnedFd,
    program: RefCell<Option<Attached>>,
}

impl Wire {
    /// Creates the wire, in the calling thread's namespace and a new one.
    pub(crate) fn new() -> Result<Self> {
        let near = current()?;
        enter_quiet()?;
        let far = current()?;
        enter(near.as_fd())?;
        let wire = Self {
            near,
            far,
            program: RefCell::new(None),
        };
        Veth::new(NEAR, FAR, QUEUES)?;
        let namespace = format!("/proc/{}/fd/{}", process::id(), wire.far.as_raw_fd());
        ip(&format!("link set {FAR} netns {namespace}"))?;
        wire.at_far(|| {
            ip(&format!("link set {FAR} arp off promisc on up"))?;
            veth::await_up(FAR)
        })?;
        veth::await_up(NEAR)?;
        Ok(wire)
    }

    /// The device to send on, in the calling thread's namespace.
    pub(crate) fn near(&self) -> &'static str {
        NEAR
    }

    /// The device to read from, in the far namespace.
    pub(crate) fn far(&self) -> &'static str {
        FAR
    }

    /// Runs `work` with the calling thread in the far namespace; processes that it starts stay
    /// there.
    pub(crate) fn at_far<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        enter(self.far.as_fd()).context("entering the reader's namespace")?;
        let done = work();
        enter(self.near.as_fd()).context("going back to the generator's namespace")?;
        done
    }

    /// Makes the far device accept live frames: a veth does so only with an XDP program.
    pub(crate) fn take_frames(&self, verdict: Verdict) -> Result<()> {
        self.take_no_frames();
        let program = verdict.load()?;
        let attached = self.at_far(|| {
            let index = interface::index(FAR).context("the reader's device")?;
            program
                .attach(index, Hook::Driver)
                .with_context(|| format!("attaching a program to {FAR}"))
        })?;
        self.program.replace(Some(attached));
        Ok(())
    }

    /// Removes the XDP program again: with it a veth copies every skb that arrives.
    pub(crate) fn take_no_frames(&self) {
        self.program.replace(None);
    }

    /// Removes an XDP program that another application has left at the far device.
    pub(crate) fn clear(&self) -> Result<()> {
        self.at_far(|| ip(&format!("link set dev {FAR} xdp off")))
    }

    /// The far device's counters so far.
    pub(crate) fn counters(&self) -> Result<Counters> {
        self.at_far(|| veth::counters(FAR))
    }
}
