//! The tables of steered groups, kept between snapshots.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fanpcap_group::roster::RosterEntry;
use fanpcap_group::view::{GroupTable, View};
use fanpcap_linux::wait::clock;

/// Interface index and number of a group.
pub type GroupKey = (u32, u16);

/// How long to wait before asking again for a table that could not be obtained.
const AGAIN_NS: u64 = 10_000_000_000;

/// The tables found so far.
#[derive(Debug, Default)]
pub(crate) struct Tables(BTreeMap<GroupKey, Kept>);

#[derive(Debug)]
struct Kept {
    /// `None` if no process gives us the table.
    table: Option<GroupTable>,
    asked_ns: u64,
}

impl Tables {
    /// The views of the tables of these sockets' groups.
    pub(crate) fn look(&mut self, seen: &[RosterEntry]) -> BTreeMap<GroupKey, View> {
        let key = |seen: &RosterEntry| Some((seen.socket.ifindex, seen.socket.fanout?.id));
        let has_table = |seen: &&RosterEntry| {
            let page = seen.page.as_ref();
            page.is_some_and(|page| page.shared.is_some())
        };
        let keys: BTreeSet<GroupKey> = seen.iter().filter(has_table).filter_map(key).collect();
        self.0.retain(|key, _| keys.contains(key));
        let mut views = BTreeMap::new();
        for group in keys {
            let sockets = seen.iter().filter(|it| key(it) == Some(group));
            let members: BTreeSet<u64> = sockets.map(|it| it.socket.inode.into()).collect();
            if let Some(view) = self.view(group, &members) {
                views.insert(group, view);
            }
        }
        views
    }

    fn view(&mut self, group: GroupKey, sockets: &BTreeSet<u64>) -> Option<View> {
        // If the group has ended and another group with the same number has begun, the kept table
        // is not this group's.
        let is_of = |view: &View| {
            let mut places = view.places.iter();
            places.any(|place| sockets.contains(&place.member.socket()))
        };
        let look = |kept: &Kept| kept.table.as_ref()?.look().filter(is_of);
        let (now, kept) = (clock::monotonic_ns(), self.0.get(&group));
        let is_early =
            kept.is_some_and(|it| it.table.is_none() && now.saturating_sub(it.asked_ns) < AGAIN_NS);
        if let Some(view) = kept.and_then(look) {
            return Some(view);
        }
        if is_early {
            return None;
        }
        let table = GroupTable::find(group.0, group.1, Duration::ZERO);
        let kept = Kept {
            table: table.ok().flatten(),
            asked_ns: now,
        };
        let view = look(&kept);
        self.0.insert(group, kept);
        view
    }
}
