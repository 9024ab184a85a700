//! Prepares a newcomer on packet sockets before it takes its group's lock. Loading BPF programs
//! takes a while, and the process may be stopped in that time. A step is repeated under the lock if
//! it fails here, or if its result turns out to be unusable.

use super::Newcomer;
use crate::roster::Roster;
use crate::shared::{Shared, group_key};
use crate::steered::{SteerError, load_fanout};
use fanpcap_bpf::ProgramKind;
use fanpcap_config::settings::Group;
use fanpcap_config::steering::Steering;
use fanpcap_linux::bpf::{LoadError, Loaded};
use std::cell::Cell;

/// The objects that the members of a new group share.
pub(crate) fn new_shared(key: u64, steering: &Steering) -> Result<Shared, SteerError> {
    let kind = steering.compiled().map(|compiled| compiled.fanout().kind);
    let kind = kind.unwrap_or(ProgramKind::Xdp);
    Shared::new(key).map_err(|error| SteerError::Load(LoadError::of_map(kind, error)))
}

/// The objects that the members of a new group share, with the group's BPF program, until
/// [`Cell::take`].
pub(super) type Ready = Cell<Option<(Shared, Loaded)>>;

/// Makes the objects that a new group shares, if the group seems to have no members.
pub(super) fn make(newcomer: &Newcomer<'_>, steering: &Steering) -> Ready {
    let ifindex = newcomer.bound.ifindex;
    let make = || match newcomer.group {
        Group::Number(number) if newcomer.engine.is_none() && has_no_members(ifindex, number) => {
            let shared = new_shared(group_key(ifindex, number), steering).ok()?;
            let loaded = load_fanout(steering, shared.map()).ok()?;
            Some((shared, loaded))
        }
        Group::Number(_) | Group::New => None,
    };
    Cell::new(make())
}

fn has_no_members(ifindex: u32, group: u16) -> bool {
    Roster::look().is_ok_and(|roster| roster.ids(ifindex, group).next().is_none())
}
