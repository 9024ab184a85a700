//! How a newcomer finds what the members of its group share.
//!
//! A member of the same process has it at hand. Another process's descriptors are duplicated by
//! pidfd_getfd(2), where the kernel lets the newcomer trace that process. Else a member that waits
//! or reads hands them out at the group's door.

use crate::door::Knock;
use crate::identity::Identity;
use crate::page::MemberId;
use crate::record::Record;
use crate::roster::Roster;
use crate::shared::{Shared, group_key};
use fanpcap_config::mode::ModeKind;
use fanpcap_config::report::harmless_text;
use fanpcap_linux::process::lock::Lock;
use fanpcap_linux::process::netns;
use fanpcap_linux::process::pidfd::Process;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Makes of descriptors that a member has handed over what the members of the group of a key share.
type Open<T> = fn(Vec<OwnedFd>, u64) -> io::Result<T>;

/// How long a group without descriptors is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Without a page there is nobody to wait for but sockets that are being closed.
    pub(crate) for_sockets: Duration,
    /// Members may take so long to answer at the door.
    pub(crate) for_members: Duration,
}

/// That of a newcomer. The kernel waits for all CPUs before a socket is gone, and those of a busy
/// machine take their time.
const OF_NEWCOMER: Patience = Patience {
    for_sockets: Duration::from_secs(5),
    for_members: Duration::from_secs(1),
};

/// What this process has of groups: the network namespace, the group, and what is shared.
static KNOWN: Lock<Vec<(u64, Weak<Shared>)>> = Lock::new(Vec::new());

/// Remembers what a member of this process shares, for its other members.
pub(crate) fn remember(shared: &Arc<Shared>) {
    let Ok(netns) = netns::inode() else {
        return;
    };
    // Whoever has it locked may have forked: others find the group by its pages.
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

/// Both ends of the locker of a device's dock, if a member of this process has them.
pub(crate) fn recall_dock(ifindex: u32) -> Option<[OwnedFd; 2]> {
    let netns = netns::inode().ok()?;
    let known = KNOWN.try_with(|known| {
        let here = known.iter().filter(|(it, _)| *it == netns);
        let mut groups = here.filter_map(|(_, shared)| shared.upgrade());
        groups.find(|it| it.on_xdp.is_some() && it.ifindex() == ifindex)
    });
    let group = known.flatten()?;
    let [into, out_of] = group.on_xdp.as_ref()?.dock_ends();
    Some([
        into.try_clone_to_owned().ok()?,
        out_of.try_clone_to_owned().ok()?,
    ])
}

/// What the members of the group share; `None` when it has none. The caller holds the group's lock.
///
/// # Errors
/// Why it can't be had, in words.
pub(crate) fn find(identity: &Identity, ifindex: u32) -> Result<Option<Arc<Shared>>, String> {
    let key = group_key(ifindex, identity.group());
    if let Some(shared) = recall(key) {
        return Ok(Some(shared));
    }
    let found = search(identity, ifindex, OF_NEWCOMER, Shared::of)?;
    Ok(found.map(Arc::new))
}

/// The same for other processes' groups, as `open` makes it of the descriptors and the group's key.
///
/// # Errors
/// As [`find`].
pub(crate) fn search<T>(
    identity: &Identity,
    ifindex: u32,
    patience: Patience,
    open: Open<T>,
) -> Result<Option<T>, String> {
    let key = group_key(ifindex, identity.group());
    let begin = Instant::now();
    let mut knock = Knock::at(identity.group_dir());
    loop {
        let mut reason = None;
        let pages = identity.pages();
        let longest = match pages.iter().any(|(member, _)| *member != identity.id()) {
            true => patience.for_members,
            false => patience.for_sockets,
        };
        for (member, record) in pages {
            if member == identity.id() {
                continue;
            }
            match take_over(&record, key, open) {
                Ok(Some(shared)) => return Ok(Some(shared)),
                Ok(None) => {}
                Err(error) => {
                    let (pid, name) = (record.pid, harmless_text(&record.program));
                    reason = Some(format!("process {pid} ({name}): pidfd_getfd: {error}"));
                }
            }
        }
        if let Some(descriptors) = knock.hear() {
            match open(descriptors, key) {
                Ok(shared) => return Ok(Some(shared)),
                Err(error) => knock.distrust(error),
            }
        }
        if !has_others(identity, ifindex) {
            return Ok(None);
        }
        if begin.elapsed() > longest {
            return Err(match reason {
                Some(reason) => format!("{reason}; {knock}"),
                None if knock.found_a_door() => knock.to_string(),
                None => "no member has a page of this version of fanpcap".to_owned(),
            });
        }
        knock.wait(Duration::from_millis(10));
    }
}

/// What `open` makes of duplicates of the descriptors that a member's page shows; `None` if it
/// shows none.
pub(crate) fn take_over<T>(record: &Record, key: u64, open: Open<T>) -> io::Result<Option<T>> {
    let Some(numbers) = &record.shared else {
        return Ok(None);
    };
    let process = Process::open(record.pid)?;
    let descriptors = numbers.iter().map(|it| process.duplicate(*it));
    let descriptors = descriptors.collect::<io::Result<Vec<_>>>()?;
    open(descriptors, key).map(Some)
}

/// Whether the kernel's group has members but this one.
fn has_others(identity: &Identity, ifindex: u32) -> bool {
    let program = ModeKind::Program.kernel_type();
    Roster::look().is_ok_and(|roster| {
        let mut members = roster.members(identity.group());
        members.any(|socket| {
            let is_own = MemberId::of_socket(socket.inode.into()) == identity.id();
            let is_steered = socket.fanout.is_some_and(|has| has.mode == program);
            !is_own && is_steered && socket.ifindex == ifindex
        })
    })
}
