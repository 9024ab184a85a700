//! What we know of handles that fan-out concerns, kept beside them by their address.
//!
//! Handles without an entry are plain: nothing was configured for them and nothing asked. The table's
//! lock is held for moments only, with nothing that waits, no signal handler and no fork meanwhile, so
//! that libpcap's functions may be called from handlers and forked children as ever.

use crate::system::Pcap;
use crate::take_over::Installed;
use fanpcap::member::{Member, Place};
use fanpcap::rejecting::Rejections;
use fanpcap::replace::Own;
use fanpcap::request::Request;
use fanpcap::steered::Steered;
use fanpcap_linux::signal::Blocked;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

/// One handle.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) request: Arc<Request>,
    /// The application's pcap_set_snaplen().
    pub(crate) snaplen: Option<c_int>,
    /// The application's pcap_set_protocol_linux().
    pub(crate) protocol: Option<u16>,
    /// The application's pcap_set_buffer_size().
    pub(crate) buffer_size: Option<c_int>,
    /// The application's pcap_breakloop() before there was a reader.
    pub(crate) broken: bool,
    /// Activated, but pcap_activate() could not join: it may be called again.
    pub(crate) unjoined: bool,
    /// What it is of a handle on several devices.
    pub(crate) part: Part,
    /// The handles on the other devices, by their address, where the program has this one.
    pub(crate) others: Vec<usize>,
    /// What reads the handle in place of the system's library.
    pub(crate) reader: Option<Installed>,
    /// The handle in its group, and its descriptor.
    pub(crate) member: Option<(Member, RawFd)>,
}

/// A handle on one of several devices, which are read together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Part {
    /// It is none.
    #[default]
    None,
    /// Not activated yet.
    New,
    /// Activated: it receives nothing yet, or joins as the last step.
    Silent,
    /// It receives.
    Live,
    /// It could not be activated.
    Failed,
}

impl Entry {
    fn new(request: Request) -> Self {
        Self {
            request: Arc::new(request),
            snaplen: None,
            protocol: None,
            buffer_size: None,
            broken: false,
            part: Part::None,
            others: Vec::new(),
            unjoined: false,
            reader: None,
            member: None,
        }
    }
}

type Entries = BTreeMap<usize, Entry>;

static ENTRIES: Mutex<Entries> = Mutex::new(BTreeMap::new());

/// The number of entries, so that plain handles need no lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether the process has forked: then the other side may read the handles that it has too.
static FORKED: AtomicBool = AtomicBool::new(false);

/// The table, locked. Fields are dropped in this order: unlocked first, then open to signals.
struct Locked {
    entries: MutexGuard<'static, Entries>,
    _signals: Blocked,
}

impl Locked {
    fn new() -> Self {
        let signals = Blocked::new();
        // An entry is whole between statements, so a panic elsewhere has broken none.
        let entries = ENTRIES.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            entries,
            _signals: signals,
        }
    }
}

thread_local! {
    /// The lock of a thread that forks, from before to after.
    static FORKING: RefCell<Option<Locked>> = const { RefCell::new(None) };
}

/// Runs `work` on the table. A thread that forks has it locked already: the program's own fork
/// handlers may call us.
fn locked<T>(work: impl FnOnce(&mut Entries) -> T) -> T {
    let work = |entries: &mut Entries| {
        let result = work(entries);
        // Relaxed: a thread that uses a handle has learnt of it by other means, which order this too.
        COUNT.store(entries.len(), Ordering::Relaxed);
        result
    };
    let own = FORKING.try_with(RefCell::take).ok().flatten();
    let Some(mut own) = own else {
        return work(&mut Locked::new().entries);
    };
    let result = work(&mut own.entries);
    let _ = FORKING.try_with(|forking| forking.replace(Some(own)));
    result
}

extern "C" fn before_fork() {
    let _ = FORKING.try_with(|forking| forking.replace(Some(Locked::new())));
}

extern "C" fn after_fork() {
    FORKED.store(true, Ordering::Relaxed);
    let _ = FORKING.try_with(RefCell::take);
}

/// Keeps other threads out of the table while one forks: the child has only that one.
fn mind_forks() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the handlers are functions of this library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
    });
}

/// Runs `look` on a handle's entry, if it has one. It must not wait for anything.
pub(crate) fn with<T>(p: *mut Pcap, look: impl FnOnce(&mut Entry) -> T) -> Option<T> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    locked(|entries| entries.get_mut(&(p as usize)).map(look))
}

/// Runs `look` on a handle's entry; a plain handle gets one. It must not wait for anything.
pub(crate) fn with_new<T>(p: *mut Pcap, look: impl FnOnce(&mut Entry) -> T) -> T {
    mind_forks();
    let plain = || Entry::new(Request::plain());
    locked(|entries| look(entries.entry(p as usize).or_insert_with(plain)))
}

/// Notes a new handle, or that it is plain; a closed one may have had its address.
pub(crate) fn handle_create(p: *mut Pcap, request: Option<Request>) {
    let Some(request) = request else {
        drop(handle_close(p));
        return;
    };
    mind_forks();
    let entry = Entry::new(request);
    drop(locked(|entries| entries.insert(p as usize, entry)));
}

/// Forgets a handle. What it returns is dropped after the handle is closed: leaving the group comes
/// before taking the member's page away.
#[must_use]
pub(crate) fn handle_close(p: *mut Pcap) -> Option<Entry> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    locked(|entries| entries.remove(&(p as usize)))
}

/// Where a handle sits in its group.
pub(crate) fn place(p: *mut Pcap) -> Option<Place> {
    with(p, |entry| Some(entry.member.as_ref()?.0.place().clone())).flatten()
}

/// A handle's part in its group's program, where that has one.
pub(crate) fn steered(p: *mut Pcap) -> Option<Arc<Steered>> {
    with(p, |entry| entry.member.as_ref()?.0.steering().cloned()).flatten()
}

/// What notes on a member's page when it rejects all packets.
pub(crate) fn rejections(p: *mut Pcap) -> Option<Rejections> {
    with(p, |entry| Some(entry.member.as_ref()?.0.rejections())).flatten()
}

/// This process's members of the group at `place`: first `p`. After a fork the others may be the other process's too, and are none.
pub(crate) fn members(p: *mut Pcap, place: &Place) -> Vec<Own> {
    let forked = FORKED.load(Ordering::Relaxed);
    let mut own = locked(|entries| {
        let mine = entries
            .iter()
            .filter(|(at, _)| **at == p as usize || !forked);
        let members = mine.filter_map(|(at, entry)| Some((*at, entry.member.as_ref()?)));
        let beside = members.filter(|(_, (member, _))| member.place().is_beside(place));
        let own = beside.filter_map(|(at, (member, _))| {
            let own = Own {
                steered: Arc::clone(member.steering()?),
                place: member.place().clone(),
            };
            Some((at, own))
        });
        own.collect::<Vec<_>>()
    });
    own.sort_by_key(|(at, _)| *at != p as usize);
    own.into_iter().map(|(_, own)| own).collect()
}

/// A copy of the descriptor of the handle at `place`; none where it has been closed.
pub(crate) fn copy_socket(place: &Place) -> io::Result<Option<OwnedFd>> {
    locked(|entries| {
        let mut members = entries.values().filter_map(|entry| entry.member.as_ref());
        let here = members.find(|(member, _)| {
            let other = member.place();
            other.is_beside(place) && other.inode() == place.inode()
        });
        // SAFETY: handles leave the table before they are closed, so the descriptor is open.
        let socket = here.map(|(_, fd)| unsafe { BorrowedFd::borrow_raw(*fd) });
        let copied = socket.map(|socket| socket.try_clone_to_owned());
        copied.transpose()
    })
}

/// Has all readers that wait look again when they are to publish.
pub(crate) fn nudge_readers() {
    locked(|entries| {
        let readers = entries.values().filter_map(|entry| entry.reader.as_ref());
        readers.for_each(|reader| reader.as_ref().nudge());
    });
}

/// Publishes the counters of this process's other members of the group at `place`. After a fork they
/// may be the other process's to read: the kernel clears them for both.
pub(crate) fn refresh_beside(p: *mut Pcap, place: &Place) {
    if FORKED.load(Ordering::Relaxed) {
        return;
    }
    locked(|entries| {
        let others = entries.iter_mut().filter(|(at, _)| **at != p as usize);
        let members = others.filter_map(|(_, entry)| entry.member.as_mut());
        for (member, fd) in members.filter(|(member, _)| member.place().is_beside(place)) {
            // SAFETY: handles leave the table before they are closed, so the descriptor is open.
            member.refresh(unsafe { BorrowedFd::borrow_raw(*fd) });
        }
    });
}
