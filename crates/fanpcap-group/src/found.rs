//! Finds the objects that the members of a newcomer's group share.
//!
//! If the newcomer's process has another member of the group, the shared objects are in the
//! process's memory. Otherwise the newcomer duplicates the descriptors of another process by
//! pidfd_getfd(2), if the kernel lets the newcomer trace that process. If the kernel does not, a
//! member that waits or reads hands out the descriptors at the group's rendezvous.

use crate::guard::{GroupGuard, GroupLock};
use crate::identity::Identity;
use crate::page::MemberId;
use crate::record::Record;
use crate::rendezvous::DescriptorRequest;
use crate::roster::{self, Roster};
use crate::shared::{Shared, group_key};
use crate::steered::SteerError;
use fanpcap_config::mode::ModeKind;
use fanpcap_config::report::harmless_text;
use fanpcap_engine::Engine;
use fanpcap_linux::netlink::diag::PacketSocket;
use fanpcap_linux::process::lock::Lock;
use fanpcap_linux::process::netns;
use fanpcap_linux::process::pidfd::{self, Process};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

/// Opens the objects that the members of a group share, from a member's descriptors and the group's
/// key.
type Open<T> = fn(Vec<OwnedFd>, u64) -> io::Result<T>;

/// How long members may take to answer a newcomer at the rendezvous.
const FOR_MEMBERS: Duration = Duration::from_secs(1);

/// How long one socket may take to close, and how long all sockets together may take.
const GONE_WITHIN: Duration = Duration::from_secs(5);
const ALL_GONE_WITHIN: Duration = Duration::from_secs(60);

/// How long a device may take to become free after the last socket has closed.
const FREED_WITHIN: Duration = Duration::from_secs(2);

/// The interval between two checks during a wait.
pub(crate) const STEP: Duration = Duration::from_millis(10);

/// Why a newcomer can't get the objects that a group's members share.
#[derive(Debug)]
pub(crate) enum FindError {
    /// No living member's page shows the shared objects. Holds how many sockets the group has
    /// besides the newcomer's, and the reason in words. These sockets are being closed, or belong
    /// to another library.
    Pageless(usize, String),
    /// The members don't hand out the shared objects. Holds the reason in words.
    Refused(String),
}

impl fmt::Display for FindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pageless(_, reason) | Self::Refused(reason) => f.write_str(reason),
        }
    }
}

/// The objects that the members of a group share; `None` when the group has no members.
pub(crate) type Found = Result<Option<Arc<Shared>>, FindError>;

/// Sockets that are being closed. The kernel closes the sockets of a process one after the other,
/// and waits for all CPUs before each socket is gone (net/packet/af_packet.c, `packet_release()`).
#[derive(Debug)]
pub(crate) struct Leaving {
    begin: Instant,
    fewest: usize,
    fell: Instant,
}

impl Leaving {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self {
            begin: now,
            fewest: usize::MAX,
            fell: now,
        }
    }

    /// Starts the wait again, because another newcomer is about to join.
    pub(crate) fn renew(&mut self) {
        self.fewest = usize::MAX;
    }

    /// Notes how many sockets are left. Returns whether to continue the wait: false if their number
    /// has not fallen for too long, or if 60 seconds have passed.
    pub(crate) fn goes_on(&mut self, left: usize) -> bool {
        let within = match left {
            0 => FREED_WITHIN,
            _ => GONE_WITHIN,
        };
        if left < self.fewest {
            self.fewest = left;
            self.fell = Instant::now();
        }
        self.fell.elapsed() < within && self.begin.elapsed() < ALL_GONE_WITHIN
    }
}

/// The shared objects of the groups in which this process has members, each with the inode number
/// of its network namespace.
static KNOWN: Lock<Vec<(u64, Weak<Shared>)>> = Lock::new(Vec::new());

/// Remembers the objects that a member of this process shares, for other members of the process.
pub(crate) fn remember(shared: &Arc<Shared>) {
    let Ok(netns) = netns::inode() else {
        return;
    };
    // If a thread had the list locked when the process forked, the list stays locked in the child.
    // Members of the child then find the group by its pages.
    let _ = KNOWN.try_with(|known| {
        known.retain(|(_, shared)| shared.strong_count() > 0);
        known.push((netns, Arc::downgrade(shared)));
    });
}

fn recall(key: u64) -> Option<Arc<Shared>> {
    let netns = netns::inode().ok()?;
    let known = KNOWN.try_with(|known| {
        let mut here = known.iter().filter(|(it, _)| *it == netns);
        here.find_map(|(_, shared)| shared.upgrade().filter(|it| it.table().is_of(key)))
    });
    known.flatten()
}

/// The descriptors that the members of all groups on a device share, if a member of this process
/// has these descriptors.
pub(crate) fn recall_device(engine: &dyn Engine, ifindex: u32) -> Option<[OwnedFd; 2]> {
    let netns = netns::inode().ok()?;
    let known = KNOWN.try_with(|known| {
        let here = known.iter().filter(|(it, _)| *it == netns);
        let mut groups = here.filter_map(|(_, shared)| shared.upgrade());
        let is_its = |has: &'static dyn Engine| has.id() == engine.id();
        groups.find(|it| it.engine.is_some_and(is_its) && it.ifindex() == ifindex)
    });
    let group = known.flatten()?;
    let device = group.on_device.as_ref()?.device_descriptors();
    let [into, out_of] = device.map(|it| it.try_clone_to_owned());
    Some([into.ok()?, out_of.ok()?])
}

/// The objects that the members of the group share. The caller holds the group's lock.
///
/// # Errors
/// [`FindError`].
pub(crate) fn find(identity: &Identity, ifindex: u32) -> Found {
    let key = group_key(ifindex, identity.group());
    if let Some(shared) = recall(key) {
        return Ok(Some(shared));
    }
    let found = search(identity, ifindex, FOR_MEMBERS, Shared::of)?;
    Ok(found.map(Arc::new))
}

/// Returns the group's guard, and the result of [`find`]. Drops the guard while it waits for
/// sockets that are being closed.
///
/// # Errors
/// As [`GroupLock::take`].
pub(crate) fn take_and_find(
    lock: &GroupLock,
    identity: &Identity,
    ifindex: u32,
) -> Result<(GroupGuard, Found), SteerError> {
    let mut leaving = Leaving::new();
    loop {
        let guard = lock.take()?;
        match find(identity, ifindex) {
            Err(FindError::Pageless(left, _)) if leaving.goes_on(left) => drop(guard),
            found => return Ok((guard, found)),
        }
        thread::sleep(STEP);
    }
}

/// Searches other processes for what [`find`] returns. `open` makes the result from the descriptors
/// and the group's key. `for_members` is the time that members may take to answer.
///
/// # Errors
/// [`FindError`].
pub(crate) fn search<T>(
    identity: &Identity,
    ifindex: u32,
    for_members: Duration,
    open: Open<T>,
) -> Result<Option<T>, FindError> {
    let key = group_key(ifindex, identity.group());
    let begin = Instant::now();
    let mut request = DescriptorRequest::at(identity.group_dir());
    loop {
        let mut pages = identity.pages();
        // Pages of newcomers that wait for the lock do not show shared objects yet.
        pages.retain(|(member, it)| *member != identity.id() && it.shared.is_some());
        let (mut lives, mut reason) = (false, None);
        for (_, record) in &pages {
            match take_over(record, key, open) {
                Ok(Some(shared)) => return Ok(Some(shared)),
                Ok(None) => {}
                Err(error) => {
                    let (pid, name) = (record.pid, harmless_text(&record.program));
                    lives |= !pidfd::has_let_go(&error);
                    reason = Some(format!("process {pid} ({name}): pidfd_getfd: {error}"));
                }
            }
        }
        if let Some(descriptors) = request.poll() {
            match open(descriptors, key) {
                Ok(shared) => return Ok(Some(shared)),
                Err(error) => request.reject_answer(error),
            }
        }
        let sockets = count_others(identity, ifindex);
        let has_founder = pages.iter().any(|(_, page)| page.is_founder);
        if sockets == 0 && !has_founder {
            return Ok(None);
        }
        if !lives && !request.may_be_answered() {
            let reason = reason.unwrap_or_else(|| without_page(identity));
            return Err(FindError::Pageless(sockets, reason));
        }
        if begin.elapsed() > for_members {
            return Err(FindError::Refused(match reason {
                Some(reason) => format!("{reason}; {request}"),
                None => request.to_string(),
            }));
        }
        request.wait(STEP);
    }
}

/// Checks that the kernel's group is empty: a founder's group without members.
///
/// # Errors
/// [`FindError::Pageless`]: the sockets belong to another library, or to another user's members.
pub(crate) fn ensure_empty(identity: &Identity, ifindex: u32) -> Result<(), FindError> {
    match count_others(identity, ifindex) {
        0 => Ok(()),
        sockets => Err(FindError::Pageless(sockets, without_page(identity))),
    }
}

/// Why the members of a group have no page that this process trusts, in words.
fn without_page(identity: &Identity) -> String {
    match identity.served_for() {
        Some(user) => format!("the group is served for user {user}"),
        None => PAGELESS.to_owned(),
    }
}

/// The message names no process and no file size limit of a process, because nothing shows which
/// processes have the sockets.
const PAGELESS: &str =
    "no member has a page of this version of fanpcap: a page is a file (see LimitFSIZE=)";

/// Duplicates the descriptors that a member's page shows, and opens them by `open`. Returns `None`
/// if the page shows no descriptors.
pub(crate) fn take_over<T>(record: &Record, key: u64, open: Open<T>) -> io::Result<Option<T>> {
    let Some(numbers) = &record.shared else {
        return Ok(None);
    };
    let process = Process::open(record.pid)?;
    let descriptors = numbers.iter().map(|it| process.duplicate(*it));
    let descriptors = descriptors.collect::<io::Result<Vec<_>>>()?;
    open(descriptors, key).map(Some)
}

/// The number of other members in the kernel's group.
fn count_others(identity: &Identity, ifindex: u32) -> usize {
    let roster = Roster::look().unwrap_or_default();
    let members = roster.members(identity.group());
    let others = members.filter(|socket| {
        let is_own = MemberId::of_socket(socket.inode.into()) == identity.id();
        !is_own && is_steered(socket) && socket.ifindex == ifindex
    });
    others.count()
}

/// The number of silent members, whose rings an engine fills, in groups on a device.
pub(crate) fn count_silent(ifindex: u32) -> usize {
    let is_on = |it: &&PacketSocket| it.ifindex == ifindex && roster::is_on_engine(it);
    // If the number is unknown, returns the largest number, so that it never seems to have fallen.
    Roster::look().map_or(usize::MAX, |it| it.sockets().iter().filter(is_on).count())
}

fn is_steered(socket: &PacketSocket) -> bool {
    let program = ModeKind::Program.kernel_type();
    socket.fanout.is_some_and(|has| has.mode == program)
}
