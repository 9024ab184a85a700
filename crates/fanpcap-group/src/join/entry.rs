//! Enters a newcomer into a steered group. The newcomer makes the objects that the members share,
//! or gets these objects from a member. Then the newcomer takes a slot.

mod on_device;

use super::ready::{Ready, new_shared};
use super::same::{ensure_none_differs, other_program};
use super::{EngineError, JoinError, Newcomer, PerDevice, ProgramError};
use crate::exchange;
use crate::found;
use crate::guard::{GroupGuard, GroupLock};
use crate::identity::Identity;
use crate::kernel::{Entering, Kernel, Refused};
use crate::member::Member;
use crate::membership::Membership;
use crate::rejecting::BeforeJoining;
use crate::shared::{Shared, group_key};
use crate::slots::{Slots, Unjoined, digest};
use crate::steered::{SteerError, Steered, load_fanout};
use crate::table::{Row, State, at};
use fanpcap_buckets::Slot;
use fanpcap_config::settings::Group;
use fanpcap_config::steering::Steering;
use fanpcap_engine::fd_store::StoredFd;
use fanpcap_linux::bpf::Loaded;
use fanpcap_linux::packet::{self, Address};
use fanpcap_linux::wait::clock;
use fanpcap_linux::wait::pipe::Pipe;
use on_device::{Begun, Placed};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

/// A newcomer on its way into the group.
pub(super) struct Entry<'a> {
    newcomer: &'a Newcomer<'a>,
    steering: &'a Arc<Steering>,
    steered: &'a Steered,
    /// The member, if its group already has a number.
    early: Option<&'a Member>,
    ready: Ready,
    /// The group in whose table the newcomer's filters count; `None` if it has no filters.
    counts_in: Option<Arc<Shared>>,
    /// The device's packet count before the newcomer could get packets. Noted only on an engine.
    before: Cell<Option<BeforeJoining>>,
    /// The objects of a founder without members, whom the newcomer replaces.
    replaced: Cell<Option<Arc<Shared>>>,
    membership: Option<Membership>,
}

impl<'a> Entry<'a> {
    pub(super) fn new(
        newcomer: &'a Newcomer<'a>,
        steering: &'a Arc<Steering>,
        (steered, ready, counts_in): (&'a Steered, Ready, Option<Arc<Shared>>),
        early: Option<&'a Member>,
    ) -> Self {
        Self {
            newcomer,
            steering,
            steered,
            early,
            ready,
            counts_in,
            before: Cell::new(None),
            replaced: Cell::new(None),
            membership: None,
        }
    }

    /// The membership, once the newcomer has entered.
    pub(super) fn into_membership(self) -> Option<Membership> {
        self.membership
    }

    pub(super) fn enter(&mut self, address: Address) -> Result<(), JoinError> {
        let identity = self.identity();
        let lock = GroupLock::open(&identity).map_err(|error| self.steer(error))?;
        let key = group_key(self.newcomer.bound.ifindex, identity.group());
        let mut begun = self.begin(key);
        // On an engine the socket stays silent.
        let address = match self.newcomer.engine {
            Some(_) => self.newcomer.bound,
            None => address,
        };
        let (guard, membership) = loop {
            let (guard, found) = self.find(&identity, &lock)?;
            if self.newcomer.is_first && found.is_some() {
                let group = self.newcomer.fanout.id;
                return Err(EngineError::Taken { group }.into());
            }
            match (found, &self.newcomer.engine) {
                (Some(shared), _) => {
                    let (guard, placed) = self.place_beside(&shared, &lock, guard)?;
                    let membership = self.enter_beside(shared, placed, address, lock, &guard);
                    break (guard, membership);
                }
                (None, Some(asked)) if begun.is_none() => {
                    // Beginning a group takes a while, so release the lock. The group may have
                    // members afterwards.
                    drop(guard);
                    begun = Some(self.begin_with(asked.prepared.shared(key, self.steering)?)?);
                }
                (None, _) => {
                    let membership = self.enter_first(key, begun.take(), address, lock, &guard);
                    break (guard, membership);
                }
            }
        };
        self.membership = Some(membership?);
        drop(guard);
        Ok(())
    }

    /// Returns the group's guard, and the objects that the members share, if the group has members.
    fn find(
        &self,
        identity: &Identity,
        lock: &GroupLock,
    ) -> Result<(GroupGuard, Option<Arc<Shared>>), JoinError> {
        let Group::Number(group) = self.newcomer.group else {
            let guard = lock.take().map_err(|error| self.steer(error))?;
            return Ok((guard, None));
        };
        let taken = found::take_and_find(lock, identity, self.newcomer.bound.ifindex);
        let (guard, found) = taken.map_err(|error| self.steer(error))?;
        let found = found.map_err(|error| ProgramError::Unreachable {
            group,
            reasons: error.to_string(),
        })?;
        // The change may be the departure of the last member, which empties the kernel's group.
        found.as_deref().map_or(Ok(()), |it| self.repair(it))?;
        let (replaced, found) = match found {
            Some(shared) if self.replaces(&shared) => (Some(shared), None),
            found => (None, found),
        };
        self.replaced.set(replaced);
        Ok((guard, found))
    }

    /// Completes a change of the group that another process left unfinished.
    fn repair(&self, shared: &Shared) -> Result<(), JoinError> {
        let mut kernel = Kernel::of(shared);
        let lead = self.newcomer.lead().map(|lead| lead.shared().table());
        let repaired = Slots::new(shared.table(), &mut kernel)
            .behind(lead)
            .repair();
        repaired.map_err(|error| self.failed("the group's descriptor store", error))
    }

    /// Whether the newcomer replaces the group's founder: the founder has no members, and has
    /// founded the group for another steering program or on another engine, or the newcomer is on
    /// several devices.
    fn replaces(&self, shared: &Shared) -> bool {
        let table = shared.table();
        let is_without_members = table.positions() == 0;
        let has = shared.engine.map(|it| it.id());
        let wants = self.newcomer.engine.map(|it| it.prepared.engine().id());
        let is_other = has != wants
            || table.get(at::DIGEST) != self.steering.digest()
            || !matches!(self.newcomer.per_device, PerDevice::Only);
        is_without_members && is_other
    }

    /// Ends the table of the founder whom the newcomer has replaced. The caller has entered the
    /// group and holds the group's lock: a newcomer that fails before leaves the founder as it is.
    fn end_replaced(&self) {
        if let Some(replaced) = self.replaced.take() {
            replaced.table().end();
        }
    }

    fn enter_beside(
        &self,
        shared: Arc<Shared>,
        placed: Option<Placed>,
        address: Address,
        lock: GroupLock,
        guard: &GroupGuard,
    ) -> Result<Membership, JoinError> {
        let (group, ifindex) = (self.newcomer.fanout.id, self.newcomer.bound.ifindex);
        let per_device = self.newcomer.per_device;
        let has = shared.engine;
        let wants = self.newcomer.engine.map(|it| it.prepared.engine());
        if has.map(|it| it.id()) != wants.map(|it| it.id()) {
            let [has, wants] = [has, wants].map(|it| it.map(|it| it.name()));
            return Err(EngineError::other(group, has, wants).into());
        }
        if exchange::is_under_way(&shared) {
            let device_guard = guard.device_guard().map_err(|error| self.steer(error))?;
            exchange::finish(&shared, &device_guard).map_err(EngineError::Serve)?;
        }
        per_device.ensure_same(shared.table(), (group, ifindex))?;
        if shared.table().get(at::DIGEST) != self.steering.digest() {
            // If a page has the title of the group's steering program, return the error with this
            // title.
            ensure_none_differs(group, ifindex, self.newcomer.id, self.steering)?;
            return Err(other_program(group, self.steering, String::new()));
        }
        self.check_device(&shared, guard)?;
        let table = shared.table();
        if table.positions() == 0 && shared.on_device.is_none() {
            found::ensure_empty(&self.identity(), ifindex).map_err(|error| {
                let reasons = error.to_string();
                ProgramError::Unreachable { group, reasons }
            })?;
            table.set(at::LACKS_PROGRAM, 1);
        }
        let membership = self.take_slot(shared, placed, address, lock)?;
        self.set_kept(membership.shared())?;
        Ok(membership)
    }

    /// Sets the BPF program that the group's founder has loaded, if the kernel's group lacks it.
    fn set_kept(&self, shared: &Shared) -> Result<(), JoinError> {
        if shared.table().get(at::LACKS_PROGRAM) == 0 {
            return Ok(());
        }
        let kept = shared.fd_store.find(StoredFd::Program);
        let set = kept.and_then(|kept| {
            let program = kept.and_then(|kept| kept.into_iter().next());
            let program = program.ok_or(io::ErrorKind::NotFound)?;
            packet::set_fanout_program(self.newcomer.fd, program.as_fd())
        });
        let failed = |error| {
            self.newcomer
                .stranded(self.steer(SteerError::Attach(error)))
        };
        set.map_err(failed)?;
        shared.table().set(at::LACKS_PROGRAM, 0);
        Ok(())
    }

    /// Enters a group as its first member. Every step that may fail is done before the socket
    /// enters.
    fn enter_first(
        &self,
        key: u64,
        begun: Option<Begun>,
        address: Address,
        lock: GroupLock,
        guard: &GroupGuard,
    ) -> Result<Membership, JoinError> {
        if let Some(begun) = begun {
            return self.enter_first_on_device(begun, address, lock, guard);
        }
        let (shared, loaded) = match self.ready.take() {
            Some((shared, loaded)) => (shared, Some(loaded)),
            None => {
                let shared = new_shared(key, self.steering);
                (Arc::new(shared.map_err(|error| self.steer(error))?), None)
            }
        };
        self.newcomer
            .per_device
            .begin(shared.table(), self.cookie()?);
        let load = || load_fanout(self.steering, shared.map());
        let loaded = loaded.map_or_else(load, Ok);
        let loaded = loaded.map_err(|error| self.steer(error))?;
        let kept = shared.keep_program(loaded.as_fd(), self.steering.text());
        kept.map_err(|error| self.failed("sendmsg", error))?;
        let membership = self.take_slot(shared, None, address, lock)?;
        self.end_replaced();
        self.set(&membership, loaded)?;
        self.open_rendezvous(&membership);
        Ok(membership)
    }

    fn open_rendezvous(&self, membership: &Membership) {
        if let Some(early) = self.early {
            early.open_rendezvous(membership.shared());
        }
    }

    /// Gives the group its BPF program.
    fn set(&self, membership: &Membership, loaded: Loaded) -> Result<(), JoinError> {
        let set = self.steered.set(loaded, self.newcomer.fd);
        set.map_err(|error| self.newcomer.stranded(self.steer(error)))?;
        let table = membership.shared().table();
        if self.newcomer.group == Group::New {
            table.begin(group_key(
                self.newcomer.bound.ifindex,
                self.newcomer.number()?,
            ));
        }
        table.show_program(self.steering, clock::monotonic_ns());
        Ok(())
    }

    fn take_slot(
        &self,
        shared: Arc<Shared>,
        mut placed: Option<Placed>,
        address: Address,
        lock: GroupLock,
    ) -> Result<Membership, JoinError> {
        let newcomer = self.newcomer;
        self.count_in(&shared)?;
        let cookie = self.cookie()?;
        let lifeline = Pipe::new().map_err(|error| self.failed("pipe", error))?;
        let page = self.early.and_then(Member::reopen_page);
        let mut reason = None;
        let mut enter = |_| {
            let entered = self.ready_to_enter();
            let entered = entered.and_then(|()| newcomer.enter(address));
            entered.map_err(|error| {
                reason = Some(error);
                Refused
            })
        };
        let io = placed.as_ref().and_then(|it| it.io.as_ref());
        let descriptors = io.map_or_else(Vec::new, |it| it.descriptors());
        let entering = Entering {
            cookie,
            socket: newcomer.fd,
            page: page.as_ref().map(File::as_fd),
            lifeline: lifeline.read.as_fd(),
            rings: &descriptors,
            enter: &mut enter,
        };
        let lead = newcomer.lead().map(|lead| Arc::clone(lead.shared()));
        let of_lead = lead.as_ref().map(|lead| lead.table());
        let mut kernel = Kernel::with(&shared, entering);
        let slots = Slots::new(shared.table(), &mut kernel);
        let chosen = placed.as_ref().map(|it| it.slot);
        let joined = slots.behind(of_lead).join(&self.row(cookie), chosen);
        let slot = joined.map_err(|error| match error {
            Unjoined::Full => JoinError::Full(newcomer.fanout.id),
            Unjoined::Refused(Refused) => reason.unwrap_or_else(|| {
                let error = io::ErrorKind::Other.into();
                self.failed("PACKET_FANOUT", error)
            }),
            Unjoined::FdStore(error) => self.failed("the group's descriptor store", error),
        })?;
        self.show(&shared, slot);
        found::remember(&shared);
        drop(descriptors);
        let io = placed.as_mut().and_then(|it| it.io.take());
        let io = io.map(|io| (slot, io));
        let membership = Membership::new(Arc::clone(&shared), cookie, lock, lifeline.write, lead);
        let copies = self.steering.for_engine().is_some_and(|it| it.copies());
        Ok(membership.with_io(io, copies, newcomer.is_first))
    }

    /// Loads the newcomer's filters again, if they count in another table than the group's. This is
    /// rare: the group was new when the filters were loaded, and another newcomer came first.
    fn count_in(&self, shared: &Arc<Shared>) -> Result<(), JoinError> {
        let id = |of: &Shared| of.table().get(at::ID);
        let is_same = |of: &Arc<Shared>| Arc::ptr_eq(of, shared) || id(of) == id(shared);
        if self.counts_in.as_ref().is_none_or(is_same) {
            return Ok(());
        }
        let loaded = self.steered.load_for(shared.map());
        loaded.map_err(|error| self.steer(error))
    }

    /// The newcomer's row for the table.
    fn row(&self, cookie: u64) -> Row {
        let newcomer = self.newcomer;
        Row {
            weight: newcomer.choice.weight.unwrap_or(1),
            class: newcomer.class(),
            pid: std::process::id(),
            cookie,
            member: newcomer.id.socket(),
            name: newcomer.choice.name.as_deref().map_or(0, digest),
            lead: newcomer.lead().map_or(0, Membership::cookie),
            ..Row::default()
        }
    }

    /// Notes that the newcomer is about to enter the group. An earlier note is replaced, because
    /// taking the group's lock and loading the BPF program took a while. A newcomer whose filters
    /// are attached after the join rejects all packets until then.
    fn ready_to_enter(&self) -> Result<(), JoinError> {
        let (is_silent, has_filters) = (self.newcomer.is_silent(), self.counts_in.is_some());
        if has_filters && !is_silent {
            self.newcomer.reject_all()?;
        }
        if let Some(early) = self.early.filter(|_| self.newcomer.engine.is_none()) {
            early.rejections().join(is_silent || has_filters);
        }
        Ok(())
    }

    /// Writes to the newcomer's page which objects the newcomer shares with the group.
    fn show(&self, shared: &Shared, slot: Slot) {
        if let Some(early) = self.early {
            // Who sees the join on the page must see the engine there, too.
            early.show_shared(shared, self.newcomer.takes_from_host());
            if let Some(before) = self.before.get() {
                early.rejections().is_in(before);
            } else if shared.table().row(slot).state == State::Newcomer {
                early.rejections().lack_share();
            }
        }
    }

    fn cookie(&self) -> Result<u64, JoinError> {
        packet::cookie(self.newcomer.fd).map_err(|error| self.failed("SO_COOKIE", error))
    }

    fn identity(&self) -> Identity {
        match self.early {
            Some(early) => early.identity().as_ref().clone(),
            None => self.newcomer.identity(0),
        }
    }

    fn steer(&self, error: SteerError) -> JoinError {
        ProgramError::of(self.newcomer.fanout.id, error).into()
    }

    fn failed(&self, call: &'static str, error: io::Error) -> JoinError {
        self.newcomer.failed(call, error)
    }
}
