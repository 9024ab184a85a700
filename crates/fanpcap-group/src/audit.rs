//! Checks, for tests that kill members, that the shared parts of a steered group are consistent:
//! the table, the kernel's group, the descriptor store and the pages.

use crate::found;
use crate::page::MemberId;
use crate::roster::{self, Roster};
use crate::shared::{Shared, group_key};
use crate::table::{Journal, Row, State, at};
use fanpcap_buckets::Slot;
use fanpcap_engine::fd_store::StoredFd;
use std::fmt::Debug;

/// Checks a group on a device. All members of the group must be idle during the check. Returns the
/// number of members and the number of placeholders.
///
/// # Errors
/// A text that says what differs.
pub fn audit(ifindex: u32, group: u16) -> Result<(usize, usize), String> {
    let mut pages = roster::open_pages(ifindex, group);
    let key = group_key(ifindex, group);
    let shared = pages.find_map(|(_, record)| found::take_over(&record, key, Shared::of).ok()?);
    let shared = shared.ok_or("no member page leads to the group's table")?;
    let table = shared.table();
    same("journal", table.journal(), Journal::Nothing)?;
    same("exchange", table.get(at::EXCHANGE), 0)?;
    let rows: Vec<(Slot, Row)> = table.rows().collect();
    for (slot, row) in &rows {
        let is_calm = matches!(row.state, State::Live | State::Vacant);
        is_calm
            .then_some(())
            .ok_or(format!("{slot:?} is {:?}", row.state))?;
    }
    let live = rows.iter().filter(|(_, row)| row.state == State::Live);
    let live: Vec<&(Slot, Row)> = live.collect();
    same_sockets(&rows, ifindex, group)?;
    same_deposits(&shared, &rows)?;
    let of_page = roster::open_pages(ifindex, group).filter(|(_, page)| !page.is_founder);
    let of_page = of_page.map(|(member, _)| member.socket());
    let of_row = live.iter().map(|(_, row)| row.member);
    same("pages and members", sorted(of_page), sorted(of_row))?;
    let mut ranks: Vec<u8> = table.part(0).ranks().iter().map(|slot| slot.0).collect();
    ranks.sort_unstable();
    let slots: Vec<u8> = live.iter().map(|(slot, _)| slot.0).collect();
    same("ranks and slots", ranks, slots.clone())?;
    even(&shared, &slots)?;
    Ok((live.len(), rows.len() - live.len()))
}

/// Checks that the kernel's group has the sockets of all rows, and no others.
fn same_sockets(rows: &[(Slot, Row)], ifindex: u32, group: u16) -> Result<(), String> {
    let roster = Roster::look().map_err(|error| error.to_string())?;
    let in_kernel = sorted(roster.ids(ifindex, group).map(MemberId::socket));
    let in_table = sorted(rows.iter().map(|(_, row)| row.member));
    same("sockets and rows", in_kernel, in_table)
}

/// Checks that the descriptor store has the sockets of all rows, the lifelines of living members,
/// and the group's own entries. One entry may be in the store twice, if a member died while it
/// removed an entry.
fn same_deposits(shared: &Shared, rows: &[(Slot, Row)]) -> Result<(), String> {
    let text = |deposit: StoredFd| format!("{deposit:?}");
    let mut entries = Vec::new();
    let visited = shared.fd_store.visit(&mut |deposit, _| {
        entries.push(text(deposit));
        true
    });
    visited.map_err(|error| error.to_string())?;
    let mut expected = vec![text(StoredFd::Program), text(StoredFd::Lifelines)];
    let engines = shared.on_device.iter().flat_map(|it| it.entries());
    expected.extend(engines.map(text));
    let filter = text(StoredFd::Filter);
    expected.extend(entries.contains(&filter).then_some(filter));
    let is_spare = |entry: &&String| entry.starts_with("Spare(");
    expected.extend(entries.iter().filter(is_spare).cloned());
    for (_, row) in rows {
        expected.push(text(StoredFd::Member(row.cookie)));
        if row.state == State::Live {
            expected.push(text(StoredFd::Lifeline(row.cookie)));
        }
    }
    let count = entries.len();
    (entries, expected) = (sorted(entries), sorted(expected));
    entries.dedup();
    expected.dedup();
    let is_twice = count - entries.len() > 1;
    (!is_twice)
        .then_some(())
        .ok_or("the descriptor store has entries several times")?;
    same("fd_store and rows", entries, expected)
}

/// Checks that each member has its share of the buckets; one bucket more or less is allowed.
fn even(shared: &Shared, slots: &[u8]) -> Result<(), String> {
    let buckets = shared.table().part(0).buckets;
    let owners = buckets
        .iter()
        .map(|owner| owner.load(std::sync::atomic::Ordering::Relaxed));
    let owners: Vec<u8> = owners.collect();
    let least = owners.len() / slots.len();
    for slot in slots {
        let count = owners.iter().filter(|owner| *owner == slot).count();
        let is_even = (least..=least + 1).contains(&count);
        is_even
            .then_some(())
            .ok_or(format!("slot {slot} owns {count} buckets"))?;
    }
    let is_live = owners.iter().all(|owner| slots.contains(owner));
    is_live
        .then_some(())
        .ok_or("a bucket has no living owner".to_owned())
}

fn sorted<T: Ord>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = all.into_iter().collect();
    all.sort_unstable();
    all
}

fn same<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    (found == expected)
        .then_some(())
        .ok_or_else(|| format!("{what}: {found:?}, not {expected:?}"))
}
