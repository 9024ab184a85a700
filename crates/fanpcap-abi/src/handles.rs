//! What we know of handles that fan-out concerns, kept beside them by their address.
//!
//! Handles without an entry are plain: nothing was configured for them and nothing asked.

use crate::system::Pcap;
use fanpcap::member::Member;
use fanpcap::request::Request;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One handle.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) request: Request,
    /// The application's pcap_set_snaplen().
    pub(crate) snaplen: Option<c_int>,
    /// The application's pcap_set_protocol_linux().
    pub(crate) protocol: Option<u16>,
    /// The handle's place in its group, once it is activated, and its descriptor.
    pub(crate) member: Option<(Member, RawFd)>,
}

impl Entry {
    pub(crate) fn new(request: Request) -> Self {
        Self {
            request,
            snaplen: None,
            protocol: None,
            member: None,
        }
    }
}

type Entries = BTreeMap<usize, Entry>;

fn entries() -> MutexGuard<'static, Entries> {
    static ENTRIES: Mutex<Entries> = Mutex::new(BTreeMap::new());
    // An entry is whole between statements, so a panic elsewhere has broken none.
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `look` on a handle's entry, if it has one.
pub(crate) fn with<T>(p: *mut Pcap, look: impl FnOnce(&mut Entry) -> T) -> Option<T> {
    entries().get_mut(&(p as usize)).map(look)
}

/// Runs `look` on a handle's entry; a plain handle gets one.
pub(crate) fn with_new<T>(p: *mut Pcap, look: impl FnOnce(&mut Entry) -> T) -> T {
    let mut entries = entries();
    look(
        entries
            .entry(p as usize)
            .or_insert_with(|| Entry::new(Request::plain())),
    )
}

/// Notes a new handle, or that it is plain; a closed one may have had its address.
pub(crate) fn handle_create(p: *mut Pcap, request: Option<Request>) {
    let mut entries = entries();
    match request {
        Some(request) => drop(entries.insert(p as usize, Entry::new(request))),
        None => drop(entries.remove(&(p as usize))),
    }
}

/// Forgets a handle. What it returns is dropped after the handle is closed: leaving the group comes
/// before taking the member's page away.
#[must_use]
pub(crate) fn handle_close(p: *mut Pcap) -> Option<Entry> {
    entries().remove(&(p as usize))
}

/// Publishes the counters of this process's other members of the group that `p` is in.
pub(crate) fn refresh_beside(p: *mut Pcap) {
    let mut entries = entries();
    let own = entries
        .get(&(p as usize))
        .and_then(|entry| entry.member.as_ref());
    let Some(place) = own.map(|(member, _)| member.place()) else {
        return;
    };
    let others = entries.iter_mut().filter(|(at, _)| **at != p as usize);
    let members = others.filter_map(|(_, entry)| entry.member.as_mut());
    for (member, fd) in members.filter(|(member, _)| member.place() == place) {
        // SAFETY: handles leave the table before they are closed, so the descriptor is open.
        member.refresh(unsafe { BorrowedFd::borrow_raw(*fd) });
    }
}
