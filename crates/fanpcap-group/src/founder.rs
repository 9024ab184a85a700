//! Founds a steered group before its first member joins, and keeps it while it has no member.
//!
//! Loading a BPF program takes `CAP_BPF`. Some applications have given it up when they open their
//! handle, such as dumpcap, so they can't be a group's first member. A founder loads the group's
//! BPF programs for them. It is no member: it has no slot, and its socket gets no packets. The
//! socket only identifies the founder's page, which leads newcomers to the shared objects.
//!
//! The founder has the descriptor store open, so sockets and rings outlive the last member. The
//! next newcomer takes them over, or the founder settles them ([`Founder::lock_memberless`]).

mod error;
mod memberless;

use crate::found;
use crate::guard::GroupLock;
use crate::identity::Identity;
use crate::join::{JoinError, ProgramError, ensure_ethernet, new_shared};
use crate::kernel::Kernel;
use crate::page::{MemberId, Page, new_record};
use crate::record::{FOUNDS, MemberCounters, Record, at};
use crate::shared::{Shared, group_key, group_of};
use crate::slots::Slots;
use crate::steered::{Steered, load_fanout};
use crate::table::{self, Journal, Row, State};
use crate::view::GroupTable;
pub use error::{AttendError, FoundError};
use fanpcap_config::mode::Mode;
use fanpcap_config::steering::Steering;
use fanpcap_linux::bpf::Loaded;
use fanpcap_linux::packet::{self, Address, ETH_P_SILENT};
use fanpcap_linux::wait::clock;
pub use memberless::Memberless;
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
    /// The socket whose inode and cookie identify the founder.
    _socket: OwnedFd,
}

/// A group that is about to be founded: its shared objects and its loaded BPF programs.
struct Prepared<'a> {
    steering: &'a Arc<Steering>,
    identity: Identity,
    socket: OwnedFd,
    shared: Shared,
    steered: Arc<Steered>,
    fanout: Loaded,
}

impl Founder {
    /// Founds a group on packet sockets in the calling thread's network namespace. Returns `None`
    /// if the group has members or a founder already. `mode` is the mode of a steering program,
    /// with its options.
    ///
    /// # Errors
    /// [`FoundError`]: for example without `CAP_BPF`.
    pub fn found(
        (ifindex, group): (u32, u16),
        mode: Mode,
        steering: &Arc<Steering>,
    ) -> Result<Option<Self>, FoundError> {
        let steer = |error| JoinError::from(ProgramError::of(group, error));
        // Load the BPF programs before taking the lock, because loading takes a while.
        let prepared = Prepared::new((ifindex, group), mode, steering)?;
        let lock = GroupLock::open(&prepared.identity).map_err(steer)?;
        let taken = found::take_and_find(&lock, &prepared.identity, ifindex);
        let (_guard, found) = taken.map_err(steer)?;
        let found = found.map_err(|error| {
            let reasons = error.to_string();
            JoinError::from(ProgramError::Unreachable { group, reasons })
        })?;
        match found {
            Some(_) => Ok(None),
            None => prepared.begin(lock).map(Some),
        }
    }

    /// The index of the interface that the group is on.
    pub fn ifindex(&self) -> u32 {
        group_of(self.key).0
    }

    /// The descriptor to wait for. It is readable while a newcomer asks for the shared objects, or
    /// while a member is gone that nobody has looked after.
    pub fn waits_on(&self) -> BorrowedFd<'_> {
        self.shared.lifelines.as_fd()
    }

    /// Whether the group's first member has replaced the founder: it came with another steering
    /// program, with several devices, or on an engine.
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

    /// Answers newcomers, and publishes the counters of the founder's BPF programs. Removes the
    /// founder's page if the founder has been replaced.
    ///
    /// # Errors
    /// The error of accept(2) at the rendezvous.
    pub fn attend(&self) -> Result<(), AttendError> {
        if self.is_replaced() {
            drop(self.page.lock().ok().and_then(|mut page| page.take()));
            return Ok(());
        }
        self.steered.publish();
        self.shared.answer().map_err(AttendError::Answer)
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
    /// the group.
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
        let is_memberless = is_memberless.map_err(AttendError::Change)?;
        Ok(is_memberless.then(|| Memberless::new(&self.shared, guard)))
    }
}

impl<'a> Prepared<'a> {
    fn new(
        (ifindex, group): (u32, u16),
        mode: Mode,
        steering: &'a Arc<Steering>,
    ) -> Result<Self, FoundError> {
        let socket = packet::open().map_err(FoundError::of("socket"))?;
        let protocol = ETH_P_SILENT;
        let bound = packet::bind(socket.as_fd(), Address { ifindex, protocol });
        bound.map_err(FoundError::of("bind"))?;
        ensure_ethernet(socket.as_fd(), ifindex)?;
        let inode = packet::inode(socket.as_fd()).map_err(FoundError::of("fstat"))?;
        let steer = |error| JoinError::from(ProgramError::of(group, error));
        let shared = new_shared(group_key(ifindex, group), steering).map_err(steer)?;
        let fanout = load_fanout(steering, shared.map()).map_err(steer)?;
        Ok(Self {
            steering,
            identity: Identity::new(group, mode, ifindex, MemberId::of_socket(inode)),
            steered: Arc::new(Steered::load(steering, None, shared.map()).map_err(steer)?),
            socket,
            shared,
            fanout,
        })
    }

    /// Begins the group. The caller holds the group's lock, and the group has no members.
    fn begin(self, lock: GroupLock) -> Result<Founder, FoundError> {
        let Self {
            steering,
            identity,
            socket,
            shared,
            steered,
            fanout,
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
        shared.table().set(table::at::ID, cookie);
        let kept = shared.keep_program(fanout.as_fd(), steering.text());
        let kept = kept.and_then(|()| steered.keep_filter(&shared.fd_store));
        kept.map_err(FoundError::of("sendmsg"))?;
        shared.table().show_program(steering, clock::monotonic_ns());
        steered.count_late(fanout);
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
            _socket: socket,
        })
    }
}
