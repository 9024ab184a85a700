//! The table of the handles for which settings or calls request something, by the handle's address.
//!
//! A handle without an entry is plain: nothing was configured for it, and no call requested
//! anything for it. libpcap's functions may be called in signal handlers and in forked children. So
//! the table is locked only briefly, with signals blocked. A process that forks holds the lock, so
//! that no other thread is in the middle of a change. Code that holds the lock must not wait,
//! allocate or free: see [`Lock::with`].

pub(crate) mod breaks;
mod list;

use crate::away::Away;
use crate::device_drops::DeviceDrops;
use crate::installed::Installed;
use crate::pcap_handle::PcapHandle;
use crate::polled::Polled;
use fanpcap::handle::Notes;
use fanpcap::request::Request;
use fanpcap_group::identity::Identity;
use fanpcap_group::join::Prepared;
use fanpcap_group::member::Member;
use fanpcap_group::member::OwnMember;
use fanpcap_group::membership::Membership;
use fanpcap_group::record::MemberCounters;
use fanpcap_group::rejecting::Rejections;
use fanpcap_group::steered::Steered;
use fanpcap_linux::process::lock::Lock;
use fanpcap_nic::placing::Placed;
use list::List;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Once};

pub(crate) struct Entry {
    handle: usize,
    pub(crate) request: Arc<Request>,
    pub(crate) notes: Notes,
    /// The handles on the other devices, if the application's handle captures on several devices.
    pub(crate) others: Option<Arc<[PcapHandle]>>,
    /// The reader that reads the handle in place of the system's library.
    pub(crate) reader: Option<Installed>,
    /// The preparations of a handle that is to join a group on XDP.
    pub(crate) prepared: Option<Arc<Prepared>>,
    /// The handle's membership in its group, and its descriptor.
    pub(crate) member: Option<(Member, RawFd)>,
    /// Whether the handle's socket is not on the handle's device (`apart`).
    pub(crate) is_apart: bool,
    /// The handle's membership in a group of a poller.
    pub(crate) polled: Option<Arc<Polled>>,
    /// What the handle needs when its device is gone; `None` if it does not wait then.
    pub(crate) away: Option<Arc<Away>>,
    /// Packets that the handle's former members received and dropped, as far as the system's
    /// library has not counted them.
    pub(crate) past: MemberCounters,
    /// What the devices dropped, of a handle that waits for its device.
    pub(crate) device_drops: DeviceDrops,
    /// Changes that the handle's settings have made to its device.
    pub(crate) placed: Option<Placed>,
    next: Option<Box<Entry>>,
}

impl Entry {
    fn new(handle: usize, request: Request) -> Self {
        Self {
            handle,
            request: Arc::new(request),
            notes: Notes::default(),
            others: None,
            reader: None,
            prepared: None,
            member: None,
            is_apart: false,
            polled: None,
            away: None,
            past: MemberCounters::default(),
            device_drops: DeviceDrops::default(),
            placed: None,
            next: None,
        }
    }
}

static ENTRIES: Lock<List> = Lock::new(List::new());

/// The number of entries. Calls on plain handles need no lock while it is 0.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether the process has forked. If it has, the other process may read the same handles.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn before_fork() {
    ENTRIES.before_fork();
}

extern "C" fn after_fork() {
    FORKED.store(true, Ordering::Relaxed);
    ENTRIES.after_fork();
}

/// Registers handlers that lock the table while a thread forks, so that no other thread changes the
/// table meanwhile. Only the forking thread exists in the child.
fn mind_forks() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the handlers are functions of this library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
    });
}

/// Gives a handle an entry, unless it has one.
fn insert(p: PcapHandle, request: Request) {
    mind_forks();
    let entry = Box::new(Entry::new(p.address(), request));
    let left = ENTRIES.with(|entries| {
        let left = entries.insert(entry);
        // This store runs under the lock, so that no fork comes between the insertion and the
        // store. Relaxed is enough: a thread that uses a handle got it from the thread that opened
        // it, and that hand-over orders this store too.
        COUNT.fetch_add(usize::from(left.is_none()), Ordering::Relaxed);
        left
    });
    if left.is_none() {
        breaks::open(p.address());
    }
}

/// Runs `look` on a handle's entry, if it has one. `look` must not wait, allocate or free.
pub(crate) fn with<T>(p: PcapHandle, look: impl FnOnce(&mut Entry) -> T) -> Option<T> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    ENTRIES.with(|entries| entries.get_mut(p.address()).map(look))
}

/// Runs `look` on a handle's entry, as [`with`] does. A plain handle gets an entry.
pub(crate) fn with_new<T>(p: PcapHandle, look: impl FnOnce(&mut Entry) -> T) -> T {
    let mut look = Some(look);
    loop {
        let found = with(p, |entry| look.take().map(|look| look(entry)));
        if let Some(found) = found.flatten() {
            return found;
        }
        insert(p, Request::plain());
    }
}

/// Adds the entry of a new handle. Removes a stale entry with the same address.
pub(crate) fn handle_create(p: PcapHandle, request: Option<Request>) {
    drop(handle_close(p));
    if let Some(request) = request {
        insert(p, request);
    }
}

/// Removes a handle's entry. The caller drops the entry after it has closed the handle, because the
/// member must leave its group before its page is removed.
#[must_use]
pub(crate) fn handle_close(p: PcapHandle) -> Option<Box<Entry>> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let removed = ENTRIES.with(|entries| {
        let removed = entries.remove(p.address())?;
        COUNT.fetch_sub(1, Ordering::Relaxed);
        Some(removed)
    })?;
    breaks::close(p.address());
    Some(removed)
}

pub(crate) fn identity(p: PcapHandle) -> Option<Arc<Identity>> {
    with(p, |entry| {
        Some(Arc::clone(entry.member.as_ref()?.0.identity()))
    })
    .flatten()
}

pub(crate) fn steered(p: PcapHandle) -> Option<Arc<Steered>> {
    with(p, |entry| entry.member.as_ref()?.0.steered().cloned()).flatten()
}

pub(crate) fn membership(p: PcapHandle) -> Option<Arc<Membership>> {
    with(p, |entry| entry.member.as_ref()?.0.membership().cloned()).flatten()
}

pub(crate) fn is_apart(p: PcapHandle) -> bool {
    with(p, |entry| entry.is_apart).unwrap_or(false)
}

pub(crate) fn polled(p: PcapHandle) -> Option<Arc<Polled>> {
    with(p, |entry| entry.polled.clone()).flatten()
}

pub(crate) fn away(p: PcapHandle) -> Option<Arc<Away>> {
    with(p, |entry| entry.away.clone()).flatten()
}

/// The record on a member's page that shows when the member rejects all packets. `None` if the
/// handle is no member, or a member without a share.
pub(crate) fn rejections(p: PcapHandle) -> Option<Rejections> {
    let of_member = |entry: &mut Entry| {
        let (member, _) = entry.member.as_ref()?;
        let has_share = member
            .membership()
            .is_none_or(|membership| membership.has_share());
        has_share.then(|| member.rejections())
    };
    with(p, of_member).flatten()
}

/// This process's members in the group `identity` that have a part in the group's steering program.
/// `p` is the first in the list. After a fork only `p` is in the list: the other process may read
/// the other members.
pub(crate) fn members(p: PcapHandle, identity: &Identity) -> Vec<OwnMember> {
    let own_of = |entry: &Entry| {
        let (member, _) = entry.member.as_ref()?;
        let is_beside = member.identity().is_beside(identity);
        Some((entry.handle, member.own().filter(|_| is_beside)?))
    };
    let mut own = collect(|entry| is_mine(p, entry).then(|| own_of(entry))?);
    if let Some(at) = own.iter().position(|(handle, _)| *handle == p.address()) {
        let first = own.remove(at);
        own.insert(0, first);
    }
    own.into_iter().map(|(_, own)| own).collect()
}

/// Whether an entry belongs to `p`, or the process has never forked, so that it shares no handle
/// with another process.
fn is_mine(p: PcapHandle, entry: &Entry) -> bool {
    entry.handle == p.address() || !FORKED.load(Ordering::Relaxed)
}

/// Collects the results of `look` on all entries.
fn collect<T>(look: impl Fn(&Entry) -> Option<T>) -> Vec<T> {
    loop {
        let room = COUNT.load(Ordering::Relaxed) + 1;
        let mut found = Vec::with_capacity(room);
        let fits = ENTRIES.with(|entries| {
            found.extend(entries.iter().filter_map(&look).take(room));
            found.len() < room
        });
        if fits {
            return found;
        }
    }
}

/// Copies the descriptor of the handle that is the member `identity`; `None` if this process has no
/// such open handle.
pub(crate) fn copy_socket(identity: &Identity) -> io::Result<Option<OwnedFd>> {
    ENTRIES.with(|entries| {
        let mut members = entries.iter().filter_map(|entry| entry.member.as_ref());
        let here = members.find(|(member, _)| {
            let other = member.identity();
            other.is_beside(identity) && other.id() == identity.id()
        });
        // SAFETY: handles leave the table before they are closed, so the descriptor is open.
        let socket = here.map(|(_, fd)| unsafe { BorrowedFd::borrow_raw(*fd) });
        let copied = socket.map(|socket| socket.try_clone_to_owned());
        copied.transpose()
    })
}

/// Wakes all waiting readers, so that they compute again the time at which they must publish
/// counters.
pub(crate) fn nudge_readers() {
    ENTRIES.with(|entries| {
        let readers = entries.iter().filter_map(|entry| entry.reader.as_ref());
        readers.for_each(|reader| reader.as_ref().control().nudge());
    });
}

/// Publishes the counters of the members that this process has in the group `identity`, except `p`.
/// Does nothing after a fork, because a read of the kernel's counters clears them for the other
/// process too.
pub(crate) fn refresh_beside(p: PcapHandle, identity: &Identity) {
    if FORKED.load(Ordering::Relaxed) {
        return;
    }
    ENTRIES.with(|entries| {
        let others = entries.iter().filter(|entry| entry.handle != p.address());
        let members = others.filter_map(|entry| entry.member.as_ref());
        for (member, fd) in members.filter(|(member, _)| member.identity().is_beside(identity)) {
            // SAFETY: handles leave the table before they are closed, so the descriptor is open.
            member.refresh(unsafe { BorrowedFd::borrow_raw(*fd) });
        }
    });
    // Publish a steering program's counters without the lock, because publishing may free memory.
    members(p, identity)
        .iter()
        .for_each(|own| own.steered.publish());
}
