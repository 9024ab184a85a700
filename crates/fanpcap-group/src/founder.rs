//! Founds a steered group before its first member joins, and keeps it while it has no member.
//!
//! Loading a BPF program takes `CAP_BPF`. Some applications have given it up when they open their
//! handle, such as dumpcap, so they can't be a group's first member. A founder loads the group's
//! BPF programs for them, and on an engine it makes their rings (`crate::spares`). It is no member:
//! it has no slot, and its socket gets no packets. The socket only identifies the founder's page,
//! which leads newcomers to the shared objects.
//!
//! The founder has the descriptor store open, so sockets and rings outlive the last member. The
//! next newcomer takes them over, or the founder settles them ([`Founder::lock_memberless`]).

mod error;
mod memberless;

use crate::found;
use crate::guard::{Claim, GroupGuard, GroupLock};
use crate::identity::Identity;
use crate::join::{self, EngineError, JoinError, PerDevice, Prepared, ProgramError};
use crate::join::{ensure_ethernet, new_shared};
use crate::kernel::Kernel;
use crate::page::{MemberId, Page, new_record};
use crate::record::{FOUNDS, MemberCounters, Record, at};
use crate::shared::{Shared, group_key, group_of};
use crate::slots::Slots;
use crate::spares::Spares;
use crate::steered::{Steered, load_fanout};
use crate::table::{self, Journal, Row, State};
use crate::view::GroupTable;
pub use error::{AttendError, FoundError};
use fanpcap_config::settings::GroupChoice;
use fanpcap_config::steering::Steering;
use fanpcap_engine::OnDevice;
use fanpcap_engine::fd_store::StoredFd;
use fanpcap_linux::bpf::Loaded;
use fanpcap_linux::packet::{self, Address, ETH_P_SILENT};
use fanpcap_linux::wait::clock;
pub use memberless::Memberless;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How often a founder publishes the counters of its BPF programs.
pub const PERIOD: Duration = Duration::from_millis(100);

/// A steered group that this process has founded. Dropping this leaves the group to its members.
#[derive(Debug)]
pub struct Founder {
    /// Shows newcomers the shared objects, and observers the counters of `steered`. `None` once a
    /// first member has replaced the founder.
    page: Mutex<Option<Page>>,
    key: u64,
    shared: Shared,
    steered: Arc<Steered>,
    lock: GroupLock,
    spares: Mutex<Spares>,
    /// The socket whose inode and cookie identify the founder.
    _socket: OwnedFd,
}

/// A group that is about to be founded: its shared objects and its loaded BPF programs.
struct Founding<'a> {
    steering: &'a Arc<Steering>,
    identity: Identity,
    socket: OwnedFd,
    shared: Shared,
    steered: Arc<Steered>,
    /// The steering part; `None` on an engine, which has it in its own BPF program.
    fanout: Option<Loaded>,
    /// The device that the engine has taken, until newcomers find it by the founder's page.
    device: Option<(Prepared, Option<Claim>)>,
}

impl Founder {
    /// Founds the group of `choice` in the calling thread's network namespace: on the engine of
    /// this name, or on packet sockets. Beside the engine's name it says whether members want the
    /// packets that the host sends. Returns `None` if the group has members or a founder
    /// already, or if its mode is one of the kernel's.
    ///
    /// # Errors
    /// [`FoundError`]: for example without `CAP_BPF`.
    pub fn found(
        (ifindex, group): (u32, u16),
        choice: &GroupChoice,
        engine: Option<(&str, bool)>,
    ) -> Result<Option<Self>, FoundError> {
        let steer = |error| JoinError::from(ProgramError::of(group, error));
        // Load the BPF programs before taking the lock, because loading takes a while.
        let Some(founding) = Founding::new((ifindex, group), choice, engine)? else {
            return Ok(None);
        };
        let lock = GroupLock::open(&founding.identity).map_err(steer)?;
        let taken = found::take_and_find(&lock, &founding.identity, ifindex);
        let (guard, found) = taken.map_err(steer)?;
        let found = found.map_err(|error| {
            let reasons = error.to_string();
            JoinError::from(ProgramError::Unreachable { group, reasons })
        })?;
        match found {
            Some(_) => Ok(None),
            None => founding.begin(lock, &guard).map(Some),
        }
    }

    /// The index of the interface that the group is on.
    pub fn ifindex(&self) -> u32 {
        group_of(self.key).0
    }

    /// Whether an engine fills the members' rings, and counts their packets.
    pub fn is_on_engine(&self) -> bool {
        self.shared.on_device.is_some()
    }

    /// The descriptor to wait for. It is readable while a newcomer asks for the shared objects, or
    /// while a member is gone that nobody has looked after.
    pub fn waits_on(&self) -> BorrowedFd<'_> {
        self.shared.lifelines.as_fd()
    }

    /// Whether the group's first member has replaced the founder: it came with another steering
    /// program, with several devices, or on another engine.
    pub fn is_replaced(&self) -> bool {
        !self.shared.table().is_of(self.key)
    }

    /// The group's table, which may outlive the founder; `None` if it can't be mapped once more.
    pub fn table(&self) -> Option<GroupTable> {
        GroupTable::of(&self.shared, self.key)
    }

    /// Whether a member is or was in the founded group, or is joining it. If a member dies within
    /// its join, only the journal has its row, but the descriptor store may have its socket.
    pub fn has(&self, member: MemberId) -> bool {
        let table = self.shared.table();
        let is_it = |row: &Row| row.cookie != 0 && row.member == member.socket();
        let joins = || matches!(table.journal(), Journal::Join(_)) && is_it(&table.newcomer());
        !self.is_replaced() && (table.rows().any(|(_, row)| is_it(&row)) || joins())
    }

    /// Answers newcomers, makes the rings that they ask for, and publishes the counters of the
    /// founder's BPF programs. Lets the host get the device's packets while the group has no
    /// member. If the founder has been replaced, removes its page, and its group from the device.
    ///
    /// # Errors
    /// The first [`AttendError`].
    pub fn attend(&self) -> Result<(), AttendError> {
        if self.is_replaced() {
            return self.withdraw().and(self.tend_device());
        }
        self.steered.publish();
        self.shared.renew_ledger();
        let answered = self.shared.answer().map_err(AttendError::Answer);
        let spares = self.spares.lock();
        let provided = spares.map_or(Ok(()), |mut it| it.provide(&self.shared, &self.lock));
        let provided = provided.map_err(AttendError::Spares);
        provided.and(answered).and(self.tend_device())
    }

    /// Removes the page and the group's lifeline of a founder that has been replaced. If another
    /// process changes the former group, the next call tries again.
    fn withdraw(&self) -> Result<(), AttendError> {
        let Ok(mut page) = self.page.lock() else {
            return Ok(());
        };
        if page.is_none() {
            return Ok(());
        }
        let Some(_guard) = self.lock.try_take().map_err(AttendError::Lock)? else {
            return Ok(());
        };
        let removed = self.shared.fd_store.remove(StoredFd::GroupLifeline);
        removed.map_err(AttendError::Change)?;
        *page = None;
        Ok(())
    }

    /// Changes the device where members that are gone have left it as it was: they may lack the
    /// privilege. If another process has one of the locks, the next call tries again.
    fn tend_device(&self) -> Result<(), AttendError> {
        let Some(on_device) = &self.shared.on_device else {
            return Ok(());
        };
        let may_have_gone = self.shared.lifelines.is_ready().unwrap_or(true);
        if !may_have_gone && !self.steals_for_nobody() {
            return Ok(());
        }
        let Some(guard) = self.lock.try_take().map_err(AttendError::Lock)? else {
            return Ok(());
        };
        let Some(_device_guard) = guard.try_device_guard().map_err(AttendError::Lock)? else {
            return Ok(());
        };
        let given_back = self.give_back(&**on_device);
        // Frees what the device still has for other groups that are gone.
        let cleared = on_device.clear();
        given_back.and(cleared).map_err(AttendError::Device)
    }

    /// Whether a member made the host lose the device's packets, and the group has no member. A
    /// founder that was replaced does not answer for its number on the device, which another group
    /// may have by now.
    fn steals_for_nobody(&self) -> bool {
        let table = self.shared.table();
        let is_memberless = || !table.rows().any(|(_, row)| row.is_occupied());
        table.get(table::at::STEALS) != 0 && !self.is_replaced() && is_memberless()
    }

    /// Lets the host get the device's packets again if the group steals them for nobody. The next
    /// member whose settings say so steals them again. The caller holds both locks.
    fn give_back(&self, on_device: &dyn OnDevice) -> io::Result<()> {
        let table = self.shared.table();
        let number = u8::try_from(table.get(table::at::GROUP_SLOT));
        let Some(number) = number.ok().filter(|_| self.steals_for_nobody()) else {
            return Ok(());
        };
        match on_device.check(Some((number, false))) {
            // If the engine was detached, the host has the packets.
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Err(_) | Ok(()) => {
                table.set(table::at::STEALS, 0);
                Ok(())
            }
        }
    }

    /// Whether the group may have members that are gone and not settled, or a change that a process
    /// left unfinished. Needs no lock.
    pub fn has_gone_members(&self) -> bool {
        let is_gone =
            |row: &Row| matches!(row.state, State::Dead | State::TakenOver | State::Awaited);
        let table = self.shared.table();
        self.shared.lifelines.is_ready().unwrap_or(true)
            || table.journal() != Journal::Nothing
            || table.rows().any(|(_, row)| is_gone(&row))
    }

    /// Locks the group if it has no living member. While the group `awaits` the successor of a
    /// named member, it counts as one that has a member. `None` also while another process changes
    /// the group. On an engine, no more packets come into the rings of members that are gone.
    ///
    /// # Errors
    /// [`AttendError`].
    pub fn lock_memberless(&self, awaits: bool) -> Result<Option<Memberless<'_>>, AttendError> {
        let Some(guard) = self.lock.try_take().map_err(AttendError::Lock)? else {
            return Ok(None);
        };
        if self.is_replaced() {
            return Ok(None);
        }
        let mut kernel = Kernel::of(&self.shared);
        let is_memberless = Slots::new(self.shared.table(), &mut kernel).is_memberless(awaits);
        if !is_memberless.map_err(AttendError::Change)? {
            return Ok(None);
        }
        let memberless = Memberless::new(&self.shared, guard);
        memberless.stop().map_err(AttendError::Change)?;
        Ok(Some(memberless))
    }
}

impl<'a> Founding<'a> {
    fn new(
        (ifindex, group): (u32, u16),
        choice: &'a GroupChoice,
        engine: Option<(&str, bool)>,
    ) -> Result<Option<Self>, FoundError> {
        let Some(steering) = &choice.steering else {
            return Ok(None);
        };
        let socket = packet::open().map_err(FoundError::of("socket"))?;
        let protocol = ETH_P_SILENT;
        let bound = packet::bind(socket.as_fd(), Address { ifindex, protocol });
        bound.map_err(FoundError::of("bind"))?;
        ensure_ethernet(socket.as_fd(), ifindex)?;
        let inode = packet::inode(socket.as_fd()).map_err(FoundError::of("fstat"))?;
        let steer = |error| JoinError::from(ProgramError::of(group, error));
        let key = group_key(ifindex, group);
        let founding = |shared, steered, fanout, device| Self {
            steering,
            identity: Identity::new(group, choice.mode, ifindex, MemberId::of_socket(inode)),
            socket,
            shared,
            steered: Arc::new(steered),
            fanout,
            device,
        };
        if let Some((engine, outgoing)) = engine {
            let device = join::prepare(engine, ifindex, choice, outgoing)?;
            let arriving = device.arriving();
            let shared = device.begin(key, steering);
            let steered = Steered::unloaded(steering);
            let device = Some((device, arriving));
            return Ok(shared.map(|shared| founding(shared, steered, None, device)));
        }
        let shared = new_shared(key, steering).map_err(steer)?;
        let fanout = load_fanout(steering, shared.map()).map_err(steer)?;
        let kept = shared.keep_program(fanout.as_fd(), steering.text());
        kept.map_err(FoundError::of("sendmsg"))?;
        let steered = Steered::load(steering, None, shared.map()).map_err(steer)?;
        let kept = steered.keep_filter(&shared.fd_store);
        kept.map_err(FoundError::of("sendmsg"))?;
        Ok(Some(founding(shared, steered, Some(fanout), None)))
    }

    /// Begins the group, which has no members. On an engine, the group gets the device's packets
    /// from now on, and drops them until a member has joined.
    fn begin(self, lock: GroupLock, guard: &GroupGuard) -> Result<Founder, FoundError> {
        let Self {
            steering,
            identity,
            socket,
            shared,
            steered,
            fanout,
            device,
        } = self;
        let record = Record {
            is_founder: true,
            ..new_record(identity.mode(), 0, Some(steering))
        };
        let content = record.encode(MemberCounters::default());
        let group_dir = identity.group_dir().ok_or(FoundError::NoPages)?;
        let page = Page::create(group_dir, identity.id(), &content);
        let page = page.map_err(FoundError::of("the founder's page"))?;
        let cookie = packet::cookie(socket.as_fd()).map_err(FoundError::of("SO_COOKIE"))?;
        if device.is_some() {
            let steer = |error| JoinError::from(ProgramError::of(identity.group(), error));
            let _device_guard = guard.device_guard().map_err(steer)?;
            // The first member makes the host lose the packets, if its settings say so.
            let attached = join::attach_group(&shared, false);
            attached.map_err(|error| JoinError::from(EngineError::from(error)))?;
        }
        PerDevice::Only.begin(shared.table(), cookie);
        shared.table().show_program(steering, clock::monotonic_ns());
        if let Some(fanout) = fanout {
            steered.count_late(fanout);
        }
        steered.publish_on(&page.words()[at::DIGEST..]);
        let opened = shared.open_rendezvous(&page);
        opened.map_err(FoundError::of("the group's socket"))?;
        shared.show_on(page.words(), FOUNDS);
        Ok(Founder {
            page: Mutex::new(Some(page)),
            key: shared.table().get(table::at::GROUP),
            shared,
            steered,
            lock,
            spares: Mutex::default(),
            _socket: socket,
        })
    }
}
