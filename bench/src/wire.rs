//! Two network namespaces joined by a veth pair: the generator's end and the reader's.

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process;

use anyhow::{Context, Result};
use fanpcap_linux::bpf::{Attached, Hook};
use fanpcap_linux::interface;
use fanpcap_testbed::netns::{current, enter, enter_quiet};
use fanpcap_testbed::veth::{self, Veth, ip};

use crate::verdict::Verdict;

/// The two ends of a wire: the generator's device, and the reader's.
pub(crate) type Ends = [&'static str; 2];

const ENDS: Ends = ["fpbnear", "fpbfar"];

/// One queue for each CPU of the bench, so that the CPUs share no queue.
pub(crate) const QUEUES: usize = 2;

/// Frames that a device has received, and frames that it has dropped because a queue was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) received: u64,
    pub(crate) dropped: u64,
}

impl Arrived {
    /// The frames counted since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            received: self.received - before.received,
            dropped: self.dropped - before.dropped,
        }
    }
}

/// The wire. One thread creates, uses and drops it, and stays in the near namespace. The namespaces
/// end with that thread and its processes.
#[derive(Debug)]
pub(crate) struct Wire {
    near: OwnedFd,
    far: OwnedFd,
    ends: Ends,
    program: RefCell<Option<Attached>>,
}

impl Wire {
    /// Creates the wire, in the calling thread's namespace and a new one.
    pub(crate) fn new() -> Result<Self> {
        Self::named(ENDS)
    }

    /// Creates a wire whose devices have these names, in the calling thread's namespace and a new
    /// one.
    pub(crate) fn named(ends: Ends) -> Result<Self> {
        let near = current()?;
        enter_quiet()?;
        let far = current()?;
        enter(near.as_fd())?;
        Self::between(near, far, ends)
    }

    /// Creates another wire between the same namespaces.
    pub(crate) fn beside(&self, ends: Ends) -> Result<Self> {
        Self::between(self.near.try_clone()?, self.far.try_clone()?, ends)
    }

    fn between(near: OwnedFd, far: OwnedFd, ends: Ends) -> Result<Self> {
        let wire = Self {
            near,
            far,
            ends,
            program: RefCell::new(None),
        };
        let [near, far] = ends;
        Veth::new(near, far, QUEUES)?;
        let namespace = format!("/proc/{}/fd/{}", process::id(), wire.far.as_raw_fd());
        ip(&format!("link set {far} netns {namespace}"))?;
        wire.at_far(|| {
            ip(&format!("link set {far} arp off promisc on up"))?;
            veth::await_up(far)
        })?;
        veth::await_up(near)?;
        Ok(wire)
    }

    /// Removes the devices before the namespaces end.
    pub(crate) fn remove(&self) -> Result<()> {
        self.take_no_frames();
        ip(&format!("link del {}", self.near()))
    }

    /// The device to send on, in the calling thread's namespace.
    pub(crate) fn near(&self) -> &'static str {
        self.ends[0]
    }

    /// The device to read from, in the far namespace.
    pub(crate) fn far(&self) -> &'static str {
        self.ends[1]
    }

    /// Runs `work` with the calling thread in the far namespace. Processes that `work` starts stay
    /// in this namespace.
    pub(crate) fn at_far<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        enter(self.far.as_fd()).context("entering the reader's namespace")?;
        let done = work();
        enter(self.near.as_fd()).context("returning to the generator's namespace")?;
        done
    }

    /// Makes the far device accept live frames: a veth accepts live frames only with an XDP
    /// program.
    pub(crate) fn take_frames(&self, verdict: Verdict) -> Result<()> {
        self.take_no_frames();
        let program = verdict.load()?;
        let attached = self.at_far(|| {
            let far = self.far();
            let index = interface::index(far).context("the reader's device")?;
            program
                .attach(index, Hook::Driver)
                .with_context(|| format!("attaching a program to {far}"))
        })?;
        self.program.replace(Some(attached));
        Ok(())
    }

    /// Removes the XDP program. With an XDP program a veth copies every skb that arrives.
    pub(crate) fn take_no_frames(&self) {
        self.program.replace(None);
    }

    /// Removes an XDP program that another application has left at the far device.
    pub(crate) fn clear(&self) -> Result<()> {
        self.at_far(|| ip(&format!("link set dev {} xdp off", self.far())))
    }

    /// The far device's counters so far.
    pub(crate) fn arrived(&self) -> Result<Arrived> {
        let counters = self.at_far(|| veth::counters(self.far()))?;
        Ok(Arrived {
            received: counters.received,
            dropped: counters.receive_dropped,
        })
    }
}
