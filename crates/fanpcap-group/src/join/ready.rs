//! Prepares a newcomer on packet sockets before it takes its group's lock. Loading BPF programs
//! takes a while, and the process may be stopped in that time. A step is repeated under the lock if
//! it fails here, or if its result turns out to be unusable.

use super::Newcomer;
use crate::found;
use crate::guard::{GroupGuard, GroupLock};
use crate::identity::Identity;
use crate::roster::Roster;
use crate::shared::{Shared, group_key};
use crate::steered::{SteerError, load_fanout};
use fanpcap_bpf::ProgramKind;
use fanpcap_config::settings::Group;
use fanpcap_config::steering::Steering;
use fanpcap_linux::bpf::{LoadError, Loaded};
use std::cell::Cell;
use std::sync::Arc;

/// The objects that the members of a new group share.
pub(crate) fn new_shared(key: u64, steering: &Steering) -> Result<Shared, SteerError> {
    let kind = steering.compiled().map(|compiled| compiled.fanout().kind);
    let kind = kind.unwrap_or(ProgramKind::Xdp);
    Shared::new(key).map_err(|error| SteerError::Load(LoadError::of_map(kind, error)))
}

/// The objects that the members of a new group share, with the group's BPF program, until
/// [`Cell::take`].
pub(super) type Ready = Cell<Option<(Arc<Shared>, Loaded)>>;

/// Makes the objects that a new group shares, if the group seems to have no members.
pub(super) fn make(newcomer: &Newcomer<'_>, steering: &Steering) -> Ready {
    let ifindex = newcomer.bound.ifindex;
    let make = || {
        let shared = new_shared(key(newcomer), steering).ok()?;
        let loaded = load_fanout(steering, shared.map()).ok()?;
        Some((Arc::new(shared), loaded))
    };
    let is_new = match newcomer.group {
        Group::Number(number) => has_no_members(ifindex, number),
        Group::New => true,
    };
    let is_made = is_new && newcomer.engine.is_none();
    Cell::new(is_made.then(make).flatten())
}

/// The key of the newcomer's group. A new group has no number until the newcomer has entered.
fn key(newcomer: &Newcomer<'_>) -> u64 {
    match newcomer.group {
        Group::Number(number) => group_key(newcomer.bound.ifindex, number),
        Group::New => group_key(newcomer.bound.ifindex, 0),
    }
}

/// The objects of the group that a newcomer with this steering program seems to enter. Its filters
/// are loaded with the table of this group, before the newcomer takes the group's lock.
pub(super) fn seems_of(
    newcomer: &Newcomer<'_>,
    ready: &mut Ready,
    steering: &Steering,
) -> Result<Arc<Shared>, SteerError> {
    let found = found(newcomer).filter(|shared| shared.engine.is_none());
    match (found, ready.get_mut()) {
        (Some(shared), _) => Ok(shared),
        (None, Some((shared, _))) => Ok(Arc::clone(shared)),
        (None, None) => new_shared(key(newcomer), steering).map(Arc::new),
    }
}

/// The objects of the newcomer's group, if the group has members or a founder.
fn found(newcomer: &Newcomer<'_>) -> Option<Arc<Shared>> {
    let _guard = lock(newcomer)?;
    let (identity, ifindex) = (identity(newcomer)?, newcomer.bound.ifindex);
    found::find(&identity, ifindex).ok()?
}

/// Takes the lock of the newcomer's group, if the group has a number.
pub(super) fn lock(newcomer: &Newcomer<'_>) -> Option<GroupGuard> {
    GroupLock::open(&identity(newcomer)?).ok()?.take().ok()
}

fn identity(newcomer: &Newcomer<'_>) -> Option<Identity> {
    match newcomer.group {
        Group::Number(number) => Some(newcomer.identity(number)),
        Group::New => None,
    }
}

fn has_no_members(ifindex: u32, group: u16) -> bool {
    Roster::look().is_ok_and(|roster| roster.ids(ifindex, group).next().is_none())
}
