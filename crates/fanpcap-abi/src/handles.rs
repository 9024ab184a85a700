//! The table of the handles that fan-out concerns, by their address.
//!
//! A handle without an entry is plain: nothing was configured for it, and nothing asked. libpcap's
//! functions may be called in signal handlers and in forked children. So the table is locked for
//! moments only, with signals blocked; and a process that forks holds the lock itself, so that no
//! other thread is in the middle of a change. What runs under the lock waits for nothing, and
//! neither allocates nor frees: see [`Lock::with`].

pub(crate) mod breaks;
mod list;

use crate::installed::Installed;
use crate::pcap_handle::PcapHandle;
use fanpcap::handle::Notes;
use fanpcap::request::Request;
use fanpcap_group::member::{Identity, Member};
use fanpcap_group::rejecting::Rejections;
use fanpcap_group::replace::Own;
use fanpcap_group::steered::Steered;
use fanpcap_linux::process::lock::Lock;
use list::List;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Once};

/// One handle.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Its address.
    handle: usize,
    pub(crate) request: Arc<Request>,
    pub(crate) notes: Notes,
    /// The handles on the other devices, where the application has this one.
    pub(crate) others: Option<Arc<[PcapHandle]>>,
    /// What reads the handle in place of the system's library.
    pub(crate) reader: Option<Installed>,
    /// The handle in its group, and its descriptor.
    pub(crate) member: Option<(Member, RawFd)>,
    /// The entry behind it in the table.
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
            member: None,
            next: None,
        }
    }
}

static ENTRIES: Lock<List> = Lock::new(List::new());

/// The number of entries, so that plain handles need no lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether the process has forked: then the other side may read the handles that it has too.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn before_fork() {
    ENTRIES.before_fork();
}

extern "C" fn after_fork() {
    FORKED.store(true, Ordering::Relaxed);
    ENTRIES.after_fork();
}

/// Keeps other threads out of the table while one forks: the child has only that one.
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
        // Here, so that no fork comes between. Relaxed: a thread that uses a handle has learnt of
        // it by other means, which order this too.
        COUNT.fetch_add(usize::from(left.is_none()), Ordering::Relaxed);
        left
    });
    if left.is_none() {
        breaks::open(p.address());
    }
}

/// Runs `look` on a handle's entry, if it has one. It must neither wait for anything, nor allocate
/// or free.
pub(crate) fn with<T>(p: PcapHandle, look: impl FnOnce(&mut Entry) -> T) -> Option<T> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    ENTRIES.with(|entries| entries.get_mut(p.address()).map(look))
}

/// Runs `look` on a handle's entry, as [`with`] does; a plain handle gets one.
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

/// Notes a new handle, or that it is plain; a closed one may have had its address.
pub(crate) fn handle_create(p: PcapHandle, request: Option<Request>) {
    drop(handle_close(p));
    if let Some(request) = request {
        insert(p, request);
    }
}

/// Forgets a handle. What it returns is dropped after the handle is closed: leaving the group comes
/// before taking the member's page away.
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

/// Where a handle sits in its group.
pub(crate) fn identity(p: PcapHandle) -> Option<Arc<Identity>> {
    with(p, |entry| {
        Some(Arc::clone(entry.member.as_ref()?.0.identity()))
    })
    .flatten()
}

/// A handle's part in its group's steering program, where that has one.
pub(crate) fn steered(p: PcapHandle) -> Option<Arc<Steered>> {
    with(p, |entry| entry.member.as_ref()?.0.steered().cloned()).flatten()
}

/// What notes on a member's page when it rejects all packets.
pub(crate) fn rejections(p: PcapHandle) -> Option<Rejections> {
    with(p, |entry| Some(entry.member.as_ref()?.0.rejections())).flatten()
}

/// This process's members of the group of `identity` that have a part in its steering program:
/// first `p`. After a fork the others may be the other process's too, and are left out.
pub(crate) fn members(p: PcapHandle, identity: &Identity) -> Vec<Own> {
    let own_of = |entry: &Entry| {
        let (member, _) = entry.member.as_ref()?;
        let steered = member
            .steered()
            .filter(|_| member.identity().is_beside(identity))?;
        let own = Own {
            steered: Arc::clone(steered),
            identity: Arc::clone(member.identity()),
        };
        Some((entry.handle, own))
    };
    let mut own = collect(|entry| is_mine(p, entry).then(|| own_of(entry))?);
    own.sort_by_key(|(handle, _)| *handle != p.address());
    own.into_iter().map(|(_, own)| own).collect()
}

/// Whether an entry is that of `p`, or of another handle that no other process has by a fork.
fn is_mine(p: PcapHandle, entry: &Entry) -> bool {
    entry.handle == p.address() || !FORKED.load(Ordering::Relaxed)
}

/// What `look` finds in the entries.
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

/// A copy of the descriptor of the handle of `identity`; none where it has been closed.
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

/// Has all readers that wait look again when they are to publish.
pub(crate) fn nudge_readers() {
    ENTRIES.with(|entries| {
        let readers = entries.iter().filter_map(|entry| entry.reader.as_ref());
        readers.for_each(|reader| reader.as_ref().nudge());
    });
}

/// Publishes the counters of this process's other members of the group of `identity`. After a fork
/// they may be the other process's to read: the kernel clears them for both.
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
    // Those of a steering program may free what is gone.
    members(p, identity)
        .iter()
        .for_each(|own| own.steered.publish());
}
