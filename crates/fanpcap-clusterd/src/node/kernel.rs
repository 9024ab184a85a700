//! The node's selection in the kernel: taken over, switched, replaced, taken off.

use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fanpcap_cluster::Revision;
use fanpcap_cluster::node::Orders;
use fanpcap_linux::bpf::{Attached, Hook, RingBuffer, RingMapping};
use fanpcap_linux::wait::clock::realtime_ns;
use fanpcap_select::layout::Lanes;
use fanpcap_select::{Action, Claims, Program};

use super::device::Device;
use crate::hold::{Hold, Left, Set, State};
use crate::selector::Selector;

/// The selection of a device.
#[derive(Debug)]
pub(crate) struct Kernel {
    device: Device,
    hold: Hold,
    state: State,
    /// The parameters for loading a BPF program, besides the selection.
    cluster: u32,
    action: Action,
    link: Option<Attached>,
    selector: Option<Selector>,
    switched: Option<Instant>,
    /// A table may wait for the update in the stream.
    is_prepared: bool,
    /// The driver has no place for a BPF program: several CPUs may serve a queue.
    is_generic: bool,
}

/// A table that waits for the update in the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared {
    /// Its mark.
    pub(crate) mark: u32,
    /// Whether a BPF program was loaded.
    pub(crate) is_new: bool,
}

/// What a device had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Detached {
    Nothing,
    Selection,
    /// Whether applications behind the selection capture with the XDP engine.
    SelectionBeforeEngine,
}

/// Bytes of all ring buffers of a device together.
const RINGS_LEN: usize = 64 << 20;

/// Least time between two switches of a table.
const APART: Duration = Duration::from_millis(2);

impl Kernel {
    /// Takes over what an earlier agent has left on the device.
    pub(crate) fn take(device: Device, cluster: u32, action: Action) -> Result<Self> {
        let hold = Hold::take(device.ifindex)?;
        let left = hold.left()?;
        let state = hold.state()?.unwrap_or_default();
        let own = left
            .as_ref()
            .map(|left| left.link.program_id())
            .transpose()?;
        device.check_xdp(own)?;
        let mut kernel = Self {
            device,
            hold,
            state,
            cluster,
            action,
            link: None,
            selector: None,
            switched: None,
            is_prepared: true,
            is_generic: false,
        };
        match left {
            Some(left) => kernel.adopt(left),
            // The device is another one, or its selection was taken off.
            None => {
                kernel.state.set = None;
                kernel.state.loaded.clear();
            }
        }
        Ok(kernel)
    }

    /// Goes on with an earlier agent's link, and with its maps if this build knows them. An agent
    /// that died while it replaced the BPF program has written down another one than the link runs.
    fn adopt(&mut self, left: Left) {
        let runs = left.link.program_id().ok();
        let set = self.state.set.filter(|set| Some(set.program) == runs);
        self.selector = set.and_then(|set| open(&left, &set).ok());
        self.is_generic = set.is_some_and(|set| set.lanes == 0);
        self.link = Some(left.link);
    }

    /// Whether an earlier agent's BPF program selects, by a table that this one does not know.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.link.is_some() && self.selector.is_none()
    }

    /// The topology by which the kernel selects, if that is known.
    pub(crate) fn revision(&self) -> Option<Revision> {
        let control = self.selector.as_ref()?.control();
        control.generation()?;
        self.state.revision(control.mark())
    }

    /// The selection, once there is one.
    pub(crate) fn selector(&self) -> Option<&Selector> {
        self.selector.as_ref()
    }

    /// The topologies of the tables' marks, as far as they are known.
    pub(crate) fn marks(&self) -> impl Iterator<Item = (u32, Revision)> + '_ {
        self.state.loaded.iter().copied()
    }

    /// The mark of the next table. Takes back what was prepared: else the update in the stream
    /// could begin that table, with the same mark.
    pub(crate) fn next_mark(&mut self) -> u32 {
        if let Some(selector) = self.selector.as_ref().filter(|_| self.is_prepared) {
            selector.take_back();
        }
        self.is_prepared = false;
        self.mark().wrapping_add(1).max(1)
    }

    /// The mark of the table that counts.
    fn mark(&self) -> u32 {
        match &self.selector {
            Some(selector) => selector.control().mark(),
            None => self.state.loaded.last().map_or(0, |(mark, _)| *mark),
        }
    }

    /// Maps the ring buffers, for one reader; there are none in distribution mode.
    pub(crate) fn rings(&self) -> Result<Vec<RingMapping>> {
        let rings = self.selector.iter().flat_map(Selector::rings);
        let mapped: io::Result<Vec<RingMapping>> = rings.map(RingBuffer::map).collect();
        mapped.context("mapping the ring buffers")
    }

    /// When the counters were 0, in nanoseconds since 1970.
    pub(crate) fn since(&self) -> u64 {
        self.state.set.map_or(0, |set| set.since)
    }

    /// Whether the device still has the selection that this agent or an earlier one put there.
    pub(crate) fn is_attached(&self) -> Result<bool> {
        match &self.link {
            Some(link) => Ok(link.ifindex()? == self.device.ifindex),
            None => Ok(true),
        }
    }

    /// Has the kernel select by these orders from now on. Returns whether a BPF program was loaded
    /// for that.
    pub(crate) fn load(&mut self, orders: &Orders) -> Result<bool> {
        let program = self.program(orders);
        let code = code(&program)?;
        let is_same = self.state.set.is_some_and(|set| set.code == code);
        if self.selector.is_none() || !is_same {
            return self.replace(&program, code, orders).map(|()| true);
        }
        let mark = self.next_mark();
        self.state.begin(mark, orders.revision, self.mark());
        self.hold.set_state(&self.state)?;
        self.wait_for_switch();
        if let Some(selector) = &self.selector {
            selector.switch(&orders.claims, mark);
        }
        Ok(false)
    }

    /// Has the kernel select by the goal of these orders from the next update in the stream on.
    /// Until then it goes on as it did; where it has no BPF program yet, it captures nothing.
    /// `None` if it needs another BPF program than it has, which can't wait.
    pub(crate) fn prepare(&mut self, orders: &Orders, goal: &Claims) -> Result<Option<Prepared>> {
        let program = self.program(orders);
        let code = code(&program)?;
        let is_new = self.selector.is_none();
        if is_new {
            let nothing = Orders {
                claims: Claims::none(),
                ..orders.clone()
            };
            self.replace(&program, code, &nothing)?;
        } else if self.state.set.is_none_or(|set| set.code != code) {
            return Ok(None);
        }
        let mark = self.next_mark();
        self.state.begin(mark, orders.revision, self.mark());
        self.hold.set_state(&self.state)?;
        self.wait_for_switch();
        if let Some(selector) = &self.selector {
            selector.prepare(goal, mark);
            self.is_prepared = true;
        }
        Ok(Some(Prepared { mark, is_new }))
    }

    /// The BPF program that these orders need.
    fn program(&self, orders: &Orders) -> Program {
        let lanes = if self.is_generic {
            Lanes::SHARED
        } else {
            self.device.lanes()
        };
        Program {
            selection: orders.selection,
            cluster: self.cluster,
            action: self.action,
            lanes,
        }
    }

    /// Two switches are to be farther apart than a BPF program runs.
    fn wait_for_switch(&mut self) {
        let passed = self.switched.map_or(APART, |switched| switched.elapsed());
        thread::sleep(APART.saturating_sub(passed));
        self.switched = Some(Instant::now());
    }

    /// Loads a BPF program with its table, and has the device run it in the place of what is there.
    fn replace(&mut self, program: &Program, code: u64, orders: &Orders) -> Result<()> {
        let selector = match program.action {
            Action::PassToNext => Selector::load_before(program, self.hold.next()?)?,
            Action::Pass | Action::Ship { .. } => Selector::load(program, ring_len(program.lanes))?,
        };
        let id = selector
            .program()
            .id()
            .context("the BPF program's number")?;
        let set = Set {
            program: id,
            code,
            lanes: u32::try_from(program.lanes.own())?,
            bytes: bytes(program.action),
            since: realtime_ns(),
        };
        let mark = self.next_mark();
        selector.switch(&orders.claims, mark);
        let all = selector.descriptors();
        let names: Vec<String> = (0..all.len()).map(|at| at.to_string()).collect();
        let objects: Vec<_> = names.iter().map(String::as_str).zip(all).collect();
        self.hold.keep(id, &objects)?;
        let state = State {
            set: Some(set),
            loaded: vec![(mark, orders.revision)],
            promiscuous: self.state.promiscuous || self.device.set_promiscuous(true)?,
        };
        self.hold.set_state(&state)?;
        self.state = state;
        match &self.link {
            Some(link) => link
                .replace(selector.program())
                .context("replacing the selection")?,
            None => {
                let attached = self.attach(&selector);
                if !matches!(attached, Ok(Some(_))) {
                    // Nothing runs it.
                    self.hold.forget_all_but(None)?;
                }
                let Some(link) = attached? else {
                    return self.load(orders).map(drop);
                };
                self.hold.keep_link(link.as_fd())?;
                self.link = Some(link);
            }
        }
        self.hold.forget_all_but(Some(id))?;
        self.selector = Some(selector);
        Ok(())
    }

    /// Attaches the selection in the driver, or behind it where the driver has no place for that:
    /// `None` if another BPF program is to be loaded first.
    fn attach(&mut self, selector: &Selector) -> Result<Option<Attached>> {
        let name = &self.device.name;
        let hook = if self.is_generic {
            Hook::Generic
        } else {
            Hook::Driver
        };
        match selector.attach(self.device.ifindex, hook) {
            Err(error) if error.raw_os_error() == Some(EOPNOTSUPP) && !self.is_generic => {
                self.is_generic = true;
                Ok(None)
            }
            link => link
                .map(Some)
                .with_context(|| format!("attaching the selection to {name}")),
        }
    }

    /// Takes the selection off the device: packets of other nodes pass again.
    pub(crate) fn detach(self) -> Result<Detached> {
        let had = match (&self.link, self.hold.has_engine()?) {
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
        self.hold.remove()?;
        self.hold.end()?;
        Ok(had)
    }
}

/// Opens the maps that an earlier agent has left.
fn open(left: &Left, set: &Set) -> io::Result<Selector> {
    let lanes = Lanes::with_own(set.lanes);
    let (action, ends) = match set.bytes {
        0 => (Action::PassToNext, 1),
        bytes => (Action::Ship { bytes }, 1 + lanes.rings()),
    };
    // The BPF program, the control map, the counters, and where packets go.
    let fds = (0..3 + ends).map(|at| left.open(&at.to_string()));
    let fds = fds.collect::<io::Result<Vec<OwnedFd>>>()?;
    Selector::open(fds, lanes, action)
}

/// A hash of the BPF program's code.
fn code(program: &Program) -> Result<u64> {
    let object = program.object()?;
    let mut hasher = DefaultHasher::new();
    hasher.write(format!("{object:?}").as_bytes());
    Ok(hasher.finish())
}

fn bytes(action: Action) -> u16 {
    match action {
        Action::Pass | Action::PassToNext => 0,
        Action::Ship { bytes } => bytes,
    }
}

fn ring_len(lanes: Lanes) -> u32 {
    let len = RINGS_LEN / lanes.rings().next_power_of_two();
    u32::try_from(len).unwrap_or(1 << 20)
}

/// errno(3).
const EOPNOTSUPP: i32 = 95;

#[cfg(test)]
mod tests;
