//! Takes over, switches and replaces a node's selection in the kernel, on all devices of the node.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fanpcap_cluster::Revision;
use fanpcap_cluster::node::Assignment;
use fanpcap_linux::wait::clock::realtime_ns;
use fanpcap_ring::PoolMemory;
use fanpcap_select::layout::Lanes;
use fanpcap_select::{Action, Claims, Key, Program};
use fanpcap_xdp::PoolArray;

use super::attachment::Attachment;
use super::device::Device;
use crate::pins::ProgramSet;
use crate::selector::Selector;
use crate::vlan_tags;

/// The selection of the node's devices: a table, a set of counters, and each device's BPF program.
#[derive(Debug)]
pub(crate) struct Kernel {
    devices: Vec<Attachment>,
    /// Selections of an earlier agent, one for each set of maps; empty if all devices still use one
    /// set of maps. Their records are read until the selections are replaced.
    left: Vec<Selector>,
    /// The cluster's number and the action, with which all BPF programs are compiled.
    cluster: u32,
    action: Action,
    switched: Option<Instant>,
    /// Whether the next topology update in the mirrored stream may put a prepared table into use.
    is_prepared: bool,
}

/// A table that the next topology update in the mirrored stream puts into use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared {
    pub(crate) mark: u32,
    /// Whether the kernel had no BPF program, so that preparing the table loaded one.
    pub(crate) is_new: bool,
}

/// Minimum time between two switches of the table.
const APART: Duration = Duration::from_millis(2);

impl Kernel {
    /// Takes over the objects of an earlier agent on these devices.
    pub(crate) fn take(devices: Vec<Device>, cluster: u32, action: Action) -> Result<Self> {
        let devices: Result<Vec<Attachment>> = devices.into_iter().map(Attachment::take).collect();
        let mut kernel = Self {
            devices: devices?,
            left: Vec::new(),
            cluster,
            action,
            switched: None,
            is_prepared: true,
        };
        let selectors = || kernel.devices.iter().map(|it| it.selector.as_ref());
        let first = kernel.selector();
        let is_one = |it: Option<&Selector>| first.zip(it).is_some_and(|(a, b)| a.is_beside(b));
        if !selectors().all(is_one) {
            kernel.forget();
        }
        Ok(kernel)
    }

    /// Stops using all maps but the pools. The devices keep running their old BPF programs.
    fn forget(&mut self) {
        for selector in self.devices.iter_mut().filter_map(|it| it.selector.take()) {
            if !self.left.iter().any(|it| it.is_beside(&selector)) {
                self.left.push(selector);
            }
        }
    }

    /// Whether an earlier agent's BPF program selects by a table that this agent does not know.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.selector().is_none() && self.devices.iter().any(|it| it.link.is_some())
    }

    /// The topology by which the kernel selects; `None` if it is unknown.
    pub(crate) fn revision(&self) -> Option<Revision> {
        let control = self.selector()?.control();
        control.generation()?;
        self.devices.first()?.state.revision(control.mark())
    }

    /// The first device's selection, if any. All devices have the same table and counters.
    pub(crate) fn selector(&self) -> Option<&Selector> {
        self.devices.first()?.selector.as_ref()
    }

    /// The topologies in the stored states, each after its table's mark, sorted by the marks.
    pub(crate) fn marks(&self) -> impl Iterator<Item = (u32, Revision)> + use<> {
        let loaded = self.devices.iter().flat_map(|it| it.state.loaded.iter());
        loaded.copied().collect::<BTreeSet<_>>().into_iter()
    }

    /// Returns the mark for the next table. Cancels a prepared table, because the update in the
    /// stream could put that table into use later. Two tables would then have this mark.
    pub(crate) fn next_mark(&mut self) -> u32 {
        if let Some(selector) = self.selector().filter(|_| self.is_prepared) {
            selector.take_back();
        }
        self.is_prepared = false;
        self.mark().wrapping_add(1).max(1)
    }

    fn mark(&self) -> u32 {
        match self.selector() {
            Some(selector) => selector.control().mark(),
            None => self.marks().last().map_or(0, |(mark, _)| mark),
        }
    }

    /// Maps the pools, for one reader. In distribution mode there is none. Until the selections of
    /// an earlier agent are replaced, also maps their pools.
    pub(crate) fn pools(&self) -> Result<Vec<PoolMemory>> {
        let all = self.selector().into_iter().chain(&self.left);
        let pools = all.filter_map(Selector::pool);
        let mapped: io::Result<Vec<PoolMemory>> = pools.map(PoolArray::map).collect();
        mapped.context("mapping the pool")
    }

    pub(crate) fn since(&self) -> u64 {
        let set = self.devices.first().and_then(|it| it.state.set);
        set.map_or(0, |set| set.since)
    }

    /// The first device from which the attached selection is gone, if any.
    pub(crate) fn lost(&self) -> Result<Option<&str>> {
        for it in &self.devices {
            if !it.is_attached()? {
                return Ok(Some(&it.device.name));
            }
        }
        Ok(None)
    }

    /// The devices that get no packets, each with the reason: see [`Device::silence`].
    pub(crate) fn silent(&self) -> impl Iterator<Item = (&str, &'static str)> {
        let devices = self.devices.iter().map(|it| &it.device);
        devices.filter_map(|device| Some((device.name.as_str(), device.silence()?)))
    }

    /// The devices that remove VLAN tags from frames.
    pub(crate) fn tag_takers(&self) -> Vec<String> {
        let devices = self.devices.iter().map(|it| it.device.ifindex);
        devices.flat_map(vlan_tags::takers).collect()
    }

    pub(crate) fn crowded(&self) -> Vec<String> {
        let queues = self.queues();
        let lanes = Lanes::of_devices(&queues);
        let all = self.devices.iter().zip(queues).zip(lanes);
        let crowded = |((it, queues), lanes): ((&Attachment, u32), Lanes)| {
            crowded(&it.device.name, queues, lanes.queues())
        };
        all.filter_map(crowded).collect()
    }

    fn queues(&self) -> Vec<u32> {
        self.devices.iter().map(Attachment::queues).collect()
    }

    /// Makes the kernel select by this assignment. Returns whether BPF programs were loaded.
    pub(crate) fn load(&mut self, assignment: &Assignment) -> Result<bool> {
        let programs = self.programs(assignment)?;
        if self.selector().is_none() || !self.has(&programs) {
            return self.replace(&programs, assignment).map(|()| true);
        }
        self.refilter(&programs)?;
        let mark = self.begin(assignment.revision)?;
        if let Some(selector) = self.selector() {
            selector.switch(&assignment.claims, mark);
        }
        Ok(false)
    }

    /// Prepares a table for `target`, which the next topology update in the mirrored stream puts
    /// into use. Until that update, the kernel selects as before; if the kernel had no BPF program,
    /// it captures nothing. Returns `None` if the assignment needs another BPF program, which the
    /// caller must load at once.
    pub(crate) fn prepare(
        &mut self,
        assignment: &Assignment,
        target: &Claims,
    ) -> Result<Option<Prepared>> {
        let programs = self.programs(assignment)?;
        let is_new = self.selector().is_none();
        if is_new {
            let nothing = Assignment {
                claims: Claims::none(),
                ..assignment.clone()
            };
            self.replace(&programs, &nothing)?;
        } else if !self.has(&programs) {
            return Ok(None);
        }
        self.refilter(&programs)?;
        let mark = self.begin(assignment.revision)?;
        if let Some(selector) = self.selector() {
            selector.prepare(target, mark);
            self.is_prepared = true;
        }
        Ok(Some(Prepared { mark, is_new }))
    }

    /// The BPF programs that this assignment needs, one for each device, each with its hash.
    fn programs(&self, assignment: &Assignment) -> Result<Vec<(Program, u64)>> {
        ensure!(
            self.devices.len() == 1 || assignment.selection.key != Key::RoundRobin,
            "the cluster has 'select = round_robin', which needs one device: the order of \
             different devices' packets is not certain"
        );
        ensure!(
            assignment.filter.is_none() || !matches!(self.action, Action::Ship { .. }),
            "the cluster has a filter, which is for mode 'distribution', not 'capture'"
        );
        let queues = self.queues();
        let program = |lanes| {
            let program = Program {
                selection: assignment.selection,
                cluster: self.cluster,
                action: self.action,
                lanes,
                filter: assignment.filter.clone(),
            };
            let code = code(&program, queues.len())?;
            Ok((program, code))
        };
        let lanes = Lanes::of_devices(&queues).into_iter();
        lanes.map(program).collect()
    }

    /// Whether the devices run these BPF programs, whatever their filters are.
    fn has(&self, programs: &[(Program, u64)]) -> bool {
        let mut both = self.devices.iter().zip(programs);
        both.all(|(it, (_, code))| it.state.set.is_some_and(|set| set.code == *code))
    }

    /// Stores the mark of a topology's table before the table is used, and waits until tables may
    /// be switched. Returns the mark.
    fn begin(&mut self, revision: Revision) -> Result<u32> {
        let (mark, current) = (self.next_mark(), self.mark());
        for device in &mut self.devices {
            device.begin(mark, revision, current)?;
        }
        // The time between two switches must be longer than one run of a BPF program.
        let passed = self.switched.map_or(APART, |switched| switched.elapsed());
        thread::sleep(APART.saturating_sub(passed));
        self.switched = Some(Instant::now());
        Ok(mark)
    }

    /// If the filter has changed, makes the devices run the same selection with the new filter. The
    /// maps stay, so all counts continue, and no packet is missed. All BPF programs are loaded
    /// before the first one runs.
    fn refilter(&mut self, programs: &[(Program, u64)]) -> Result<()> {
        let mut others = Vec::new();
        for (device, (program, _)) in self.devices.iter_mut().zip(programs) {
            let filter = filter(program);
            let set = device.state.set.filter(|set| set.filter != filter);
            let Some((set, selector)) = set.zip(device.selector.as_ref()) else {
                continue;
            };
            let other = selector.load_beside(program, None)?;
            let id = other.program().id();
            let set = ProgramSet {
                program: id.context("the BPF program's number")?,
                filter,
                ..set
            };
            others.push((device, other, set));
        }
        for (device, other, set) in others {
            device.run(&other, set, device.state.loaded.clone())?;
            device.selector = Some(other);
        }
        Ok(())
    }

    /// Loads BPF programs with their table, and makes the devices run them in place of their old
    /// ones. If this fails, detaches the selection from devices that had no selection before. With
    /// a selection on only one leg of a tap, the node would capture a share of one direction, but
    /// all packets of the other direction.
    fn replace(&mut self, programs: &[(Program, u64)], assignment: &Assignment) -> Result<()> {
        let had: Vec<bool> = self.devices.iter().map(|it| it.link.is_some()).collect();
        self.try_replace(programs, assignment).map_err(|error| {
            let others = self.devices.iter_mut().zip(had);
            let others = others.filter(|(_, had)| !had);
            others.fold(error, |error, (device, _)| match device.withdraw() {
                Ok(()) => error,
                Err(other) => {
                    let name = &device.device.name;
                    error.context(format!("{name} keeps the new selection: {other:#}"))
                }
            })
        })
    }

    fn try_replace(&mut self, programs: &[(Program, u64)], assignment: &Assignment) -> Result<()> {
        let selectors = self.load_programs(programs)?;
        let mark = self.next_mark();
        if let Some(first) = selectors.first() {
            first.switch(&assignment.claims, mark);
        }
        let since = realtime_ns();
        self.forget();
        let all = selectors.iter().zip(programs);
        let mut all: Vec<_> = self.devices.iter_mut().zip(all).collect();
        // Devices that refused a selection come first. If they refuse again, the other devices stay
        // untouched. Devices that already run a selection come last, because their former selection
        // can't be restored.
        all.sort_by_key(|(device, _)| (device.link.is_some(), !device.is_refused));
        for (device, (selector, (program, code))) in all {
            let id = selector.program().id();
            let set = ProgramSet {
                program: id.context("the BPF program's number")?,
                code: *code,
                lanes: u32::try_from(program.lanes.own())?,
                bytes: bytes(program.action),
                since,
                filter: filter(program),
            };
            if !device.run(selector, set, vec![(mark, assignment.revision)])? {
                return self.load(assignment).map(drop);
            }
        }
        for (device, selector) in self.devices.iter_mut().zip(selectors) {
            device.selector = Some(selector);
        }
        self.left.clear();
        Ok(())
    }

    fn load_programs(&self, programs: &[(Program, u64)]) -> Result<Vec<Selector>> {
        let mut loaded: Vec<Selector> = Vec::new();
        for (device, (program, _)) in self.devices.iter().zip(programs) {
            let next = device.next(program.action)?;
            loaded.push(match (loaded.first(), next) {
                (Some(first), next) => first.load_beside(program, next)?,
                (None, Some(next)) => Selector::load_before(program, next)?,
                (None, None) => Selector::load(program, None)?,
            });
        }
        Ok(loaded)
    }
}

/// A hash of the BPF program's code without the filter, and of the number of devices. If the number
/// of devices changes, the agent must not reuse the maps, because another agent may have one of the
/// devices.
fn code(program: &Program, devices: usize) -> Result<u64> {
    let program = Program {
        filter: None,
        ..program.clone()
    };
    let mut hasher = hash(&program.object()?);
    if devices > 1 {
        hasher.write_usize(devices);
    }
    Ok(hasher.finish())
}

/// A hash of the filter; 0 if there is no filter.
fn filter(program: &Program) -> u64 {
    let filter = program.filter.as_ref();
    filter.map_or(0, |it| hash(&it.code).finish())
}

fn hash(what: &impl Debug) -> DefaultHasher {
    let mut hasher = DefaultHasher::new();
    hasher.write(format!("{what:?}").as_bytes());
    hasher
}

fn bytes(action: Action) -> u16 {
    match action {
        Action::Pass | Action::PassToNext => 0,
        Action::Ship { bytes, .. } => bytes,
    }
}

/// A message that a device has more queues than lanes. Returns `None` if `lanes` is 0. Fewer queues
/// would not help then, because several CPUs may serve one queue.
fn crowded(name: &str, queues: u32, lanes: usize) -> Option<String> {
    let shared = usize::try_from(queues).ok()?.checked_sub(lanes)?;
    (shared > 0 && lanes > 0).then(|| {
        format!(
            "{name} has {queues} receive queues, and {shared} of them share their counters: \
             'ethtool -L {name} combined {lanes}' gives each queue its own"
        )
    })
}

#[cfg(test)]
mod tests;
