//! One of a node's devices, with the link that runs its selection, and its pinned objects.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result};
use fanpcap_cluster::Revision;
use fanpcap_linux::bpf::{Attached, Hook, ObjectArray};
use fanpcap_select::Action;
use fanpcap_select::layout::Lanes;

use super::device::Device;
use crate::pins::{AgentState, DevicePins, EarlierAgent, ProgramSet};
use crate::selector::Selector;

/// A device, and the selection that it runs.
#[derive(Debug)]
pub(super) struct Attachment {
    pub(super) device: Device,
    pins: DevicePins,
    pub(super) state: AgentState,
    pub(super) link: Option<Attached>,
    /// Either all devices of the node have a selection, or no device has one.
    pub(super) selector: Option<Selector>,
    /// Whether the BPF program runs behind the driver, where several CPUs may serve one queue.
    is_generic: bool,
    /// Whether the last attempt to attach a selection failed.
    pub(super) is_refused: bool,
}

/// What ran on the device before [`Attachment::detach`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Detached {
    Nothing,
    Selection,
    /// A selection, and behind it applications that captured with the XDP engine.
    SelectionBeforeEngine,
}

impl Attachment {
    /// Takes over the objects of an earlier agent on the device.
    pub(super) fn take(device: Device) -> Result<Self> {
        let pins = DevicePins::take(device.ifindex).with_context(|| device.name.clone())?;
        let left = pins.earlier_agent()?;
        let state = pins.state()?.unwrap_or_default();
        let own = left
            .as_ref()
            .map(|left| left.link.program_id())
            .transpose()?;
        device.check_xdp(own)?;
        let mut attachment = Self {
            device,
            pins,
            state,
            link: None,
            selector: None,
            is_generic: false,
            is_refused: false,
        };
        match left {
            Some(left) => attachment.adopt(left),
            // The index belongs to another device, or no selection is attached any more.
            None => {
                attachment.state.set = None;
                attachment.state.loaded.clear();
            }
        }
        Ok(attachment)
    }

    /// Uses an earlier agent's link, and its maps if this build can read them. If that agent died
    /// while it replaced the BPF program, the stored state may name a BPF program that does not
    /// run.
    fn adopt(&mut self, left: EarlierAgent) {
        let runs = left.link.program_id().ok();
        let set = self.state.set.filter(|set| Some(set.program) == runs);
        self.selector = set.and_then(|set| open(&left, &set).ok());
        self.is_generic = set.is_some_and(|set| set.lanes == 0);
        self.link = Some(left.link);
    }

    /// The number of receive queues; 0 if several CPUs may serve queues with the same number.
    pub(super) fn queues(&self) -> u32 {
        match self.is_generic {
            true => 0,
            false => self.device.queues(),
        }
    }

    /// Whether the device still has the selection that this agent or an earlier agent attached.
    pub(super) fn is_attached(&self) -> Result<bool> {
        match &self.link {
            Some(link) => Ok(link.ifindex()? == self.device.ifindex),
            None => Ok(true),
        }
    }

    /// The array with the XDP engine's BPF program; `None` if this BPF program gets no packets.
    pub(super) fn next(&self, action: Action) -> Result<Option<ObjectArray>> {
        match action {
            Action::PassToNext => self.pins.next().map(Some),
            Action::Pass | Action::Ship { .. } => Ok(None),
        }
    }

    /// Stores the `mark` of the table that is loaded next. `current` is the mark in use.
    pub(super) fn begin(&mut self, mark: u32, revision: Revision, current: u32) -> Result<()> {
        self.state.begin(mark, revision, current);
        self.pins.set_state(&self.state)
    }

    /// Pins this selection, stores its parameters, and makes the device run it instead of the
    /// present selection. Returns `false` if the driver can't run this selection, so that another
    /// one must be loaded. After `false` or an error, the pins and the stored state are as before.
    pub(super) fn run(
        &mut self,
        selector: &Selector,
        set: ProgramSet,
        loaded: Vec<(u32, Revision)>,
    ) -> Result<bool> {
        let former = self.state.clone();
        let done = self
            .keep(selector, set, loaded)
            .and_then(|()| self.switch(selector));
        match done {
            Ok(true) => Ok(true),
            done => {
                let taken_back = self.take_back(former);
                done.and_then(|is_done| taken_back.map(|()| is_done))
            }
        }
    }

    /// Pins a selection that is about to run, and stores its parameters.
    fn keep(
        &mut self,
        selector: &Selector,
        set: ProgramSet,
        loaded: Vec<(u32, Revision)>,
    ) -> Result<()> {
        let all = selector.descriptors();
        let names: Vec<String> = (0..all.len()).map(|at| at.to_string()).collect();
        let objects: Vec<_> = names.iter().map(String::as_str).zip(all).collect();
        self.pins.keep(set.program, &objects)?;
        self.state = AgentState {
            set: Some(set),
            loaded,
            promiscuous: self.state.promiscuous || self.device.set_promiscuous(true)?,
        };
        self.pins.set_state(&self.state)
    }

    fn switch(&mut self, selector: &Selector) -> Result<bool> {
        let program = selector.program();
        match &self.link {
            Some(link) => link.replace(program).context("replacing the selection")?,
            None => {
                let Some(link) = self.attach(selector)? else {
                    return Ok(false);
                };
                self.pins.keep_link(link.as_fd())?;
                self.link = Some(link);
            }
        }
        let id = program.id().context("the BPF program's number")?;
        self.pins.forget_all_but(Some(id)).map(|()| true)
    }

    /// Undoes [`keep`](Self::keep): stores the state `former` again, and removes the pins of BPF
    /// programs that do not run. Does nothing if the link already runs the new selection.
    fn take_back(&mut self, former: AgentState) -> Result<()> {
        let runs = self.link.as_ref().map(Attached::program_id).transpose()?;
        if runs.is_some() && runs == self.state.set.map(|set| set.program) {
            return Ok(());
        }
        self.state = AgentState {
            promiscuous: self.state.promiscuous,
            ..former
        };
        self.pins.set_state(&self.state)?;
        self.pins.forget_all_but(runs)
    }

    /// Attaches the selection in the driver, or behind it if `is_generic` is set. If the driver
    /// can't run it, sets `is_generic` and returns `None`: another BPF program must be loaded.
    fn attach(&mut self, selector: &Selector) -> Result<Option<Attached>> {
        let name = &self.device.name;
        let hook = if self.is_generic {
            Hook::Generic
        } else {
            Hook::Driver
        };
        let attached = selector.attach(self.device.ifindex, hook);
        self.is_refused = attached.is_err();
        match attached {
            Err(error) if error.raw_os_error() == Some(EOPNOTSUPP) && !self.is_generic => {
                self.is_generic = true;
                Ok(None)
            }
            link => link
                .map(Some)
                .with_context(|| format!("attaching the selection to {name}")),
        }
    }

    /// Detaches a selection that was just attached, because another device refuses a selection.
    pub(super) fn withdraw(&mut self) -> Result<()> {
        let Some(link) = &self.link else {
            return Ok(());
        };
        link.detach().context("detaching the selection")?;
        self.link = None;
        self.pins.forget_link()?;
        self.state = AgentState {
            promiscuous: self.state.promiscuous,
            ..AgentState::default()
        };
        self.pins.set_state(&self.state)
    }

    /// Detaches the selection from the device, so that packets of all nodes pass again.
    pub(super) fn detach(self) -> Result<Detached> {
        let had = match (&self.link, self.pins.has_engine()?) {
            (None, _) => Detached::Nothing,
            (Some(_), false) => Detached::Selection,
            (Some(_), true) => Detached::SelectionBeforeEngine,
        };
        if self.state.promiscuous {
            self.device.set_promiscuous(false)?;
        }
        if let Some(link) = &self.link {
            link.detach().context("detaching the selection")?;
        }
        self.pins.remove()?;
        self.pins.end()?;
        Ok(had)
    }
}

/// Opens the maps that an earlier agent has pinned.
fn open(left: &EarlierAgent, set: &ProgramSet) -> io::Result<Selector> {
    let lanes = Lanes::with_own(set.lanes);
    let (action, ends) = match set.bytes {
        0 => (Action::PassToNext, 1),
        bytes => {
            let shape = fanpcap_xdp::pool_shape().map_err(io::Error::other)?;
            (Action::Ship { bytes, shape }, 2)
        }
    };
    // Pins in order: BPF program, control map, counters, an array, and the pool in the array.
    let fds = (0..3 + ends).map(|at| left.open(&at.to_string()));
    let fds = fds.collect::<io::Result<Vec<OwnedFd>>>()?;
    Selector::open(fds, lanes, action)
}

/// errno(3).
const EOPNOTSUPP: i32 = 95;
