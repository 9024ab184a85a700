//! What a newcomer makes before it takes its group's lock: BPF programs and rings take their time,
//! and a process may be stopped meanwhile. What it can't make, or makes in vain, it makes under the
//! lock.

use super::Newcomer;
use super::engine::create_rings;
use crate::roster::Roster;
use crate::shared::{Shared, group_key};
use crate::steered::{SteerError, load_fanout};
use fanpcap_bpf::ProgramKind;
use fanpcap_config::settings::Group;
use fanpcap_config::steering::Steering;
use fanpcap_linux::bpf::{LoadError, Loaded};
use fanpcap_xdp::{Lanes, MemberRings};
use std::cell::Cell;

/// What the members of a new group share.
pub(super) fn new_shared(key: u64, steering: &Steering) -> Result<Shared, SteerError> {
    let kind = steering.compiled().map(|compiled| compiled.fanout().kind);
    let kind = kind.unwrap_or(ProgramKind::Xdp);
    Shared::new(key).map_err(|error| SteerError::Load(LoadError::of_map(kind, error)))
}

/// What is made, each until it is taken.
#[derive(Default)]
pub(super) struct Ready {
    /// What the members of a new group on packet sockets share, with the group's BPF program.
    first: Cell<Option<(Shared, Loaded)>>,
    /// The newcomer's rings on the XDP engine, for a group with these lanes.
    rings: Cell<Option<(Lanes, MemberRings)>>,
}

impl Ready {
    pub(super) fn make(newcomer: &Newcomer<'_>, steering: &Steering) -> Self {
        let ready = Self::default();
        let ifindex = newcomer.bound.ifindex;
        match (newcomer.asks_xdp(), newcomer.group) {
            (Some(asked), _) => {
                let lanes = Lanes::of_device(ifindex);
                let rings = create_rings(asked, lanes);
                ready.rings.set(rings.ok().map(|rings| (lanes, rings)));
            }
            (None, Group::Number(number)) if has_no_members(ifindex, number) => {
                let shared = new_shared(group_key(ifindex, number), steering).ok();
                ready.first.set(shared.and_then(|shared| {
                    let loaded = load_fanout(steering, shared.map()).ok()?;
                    Some((shared, loaded))
                }));
            }
            (None, _) => {}
        }
        ready
    }

    pub(super) fn first(&self) -> Option<(Shared, Loaded)> {
        self.first.take()
    }

    pub(super) fn rings(&self, of_group: Lanes) -> Option<MemberRings> {
        let (lanes, rings) = self.rings.take()?;
        (lanes == of_group).then_some(rings)
    }
}

fn has_no_members(ifindex: u32, group: u16) -> bool {
    Roster::look().is_ok_and(|roster| roster.ids(ifindex, group).next().is_none())
}
