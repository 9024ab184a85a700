//! Prepares a newcomer on packet sockets before it takes its group's lock. Loading BPF programs
//! takes a while, and the process may be stopped in that time. A step is repeated under the lock if
//! it fails here, or if its result turns out to be unusable.

use super::Newcomer;
use crate::found;
use crate::guard::{GroupGuard, GroupLock};
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
    let make = || match newcomer.group {
        Group::Number(number) if newcomer.engine.is_none() && has_no_members(ifindex, number) => {
            let shared = new_shared(group_key(ifindex, number), steering).ok()?;
            let loaded = load_fanout(steering, shared.map()).ok()?;
            Some((Arc::new(shared), loaded))
        }
        Group::Number(_) | Group::New => None,
    };
    Cell::new(make())
}

/// The objects of the group that a newcomer with this steering program seems to enter. Its filters
/// are loaded with the table of this group, before the newcomer takes the group's lock.
pub(super) fn seems_of(
    newcomer: &Newcomer<'_>,
    ready: &mut Ready,
    steering: &Steering,
) -> Result<Arc<Shared>, SteerError> {
    let found = found(newcomer).filter(|(_, shared)| shared.engine.is_none());
    match (found, ready.get_mut()) {
        (Some((_, shared)), _) => Ok(shared),
        (None, Some((shared, _))) => Ok(Arc::clone(shared)),
        (None, None) => new_shared(0, steering).map(Arc::new),
    }
}

/// The objects of the newcomer's group, and the group's guard, if the group has members or a
/// founder.
pub(super) fn found(newcomer: &Newcomer<'_>) -> Option<(GroupGuard, Arc<Shared>)> {
    let Group::Number(number) = newcomer.group else {
        return None;
    };
    let identity = newcomer.identity(number);
    let guard = GroupLock::open(&identity).ok()?.take().ok()?;
    let shared = found::find(&identity, newcomer.bound.ifindex).ok()??;
    Some((guard, shared))
}

fn has_no_members(ifindex: u32, group: u16) -> bool {
    Roster::look().is_ok_and(|roster| roster.ids(ifindex, group).next().is_none())
}
