//! Which groups and members the screen shows, and in which order.

use std::cmp::Ordering;

use clap::ValueEnum;

use super::view::{Group, Member, View};

/// The sort key of members. Groups are sorted by the same key, if a group has a value for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Column {
    /// Packets per second
    #[default]
    Pps,
    /// Packets lost per second
    Drops,
    /// Packets lost since the member joined
    Dropped,
    /// Packets that wait in the ring
    Backlog,
    /// Process number
    Pid,
    /// Program's name
    Program,
    /// Age of the counters
    Age,
}

impl Column {
    /// The name, as `--sort` accepts it.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    pub(crate) fn next(self) -> Column {
        let all = Column::value_variants();
        let place = all.iter().position(|&column| column == self);
        all[place.map_or(0, |place| place + 1) % all.len()]
    }

    /// Whether the largest value comes first, unless reversed.
    pub(crate) fn is_descending(self) -> bool {
        !matches!(self, Column::Pid | Column::Program)
    }
}

/// Keeps devices, groups and members whose name on the screen contains `text`: `eth0`, `group 7
/// hash`, `no group`, `4711 tcpdump`. A device or group that matches is kept with all its members.
pub(crate) fn filter(mut view: View, text: &str) -> View {
    let text = text.trim().to_lowercase();
    if text.is_empty() {
        return view;
    }
    view.devices.retain_mut(|device| {
        let mut awaited = device.awaited_devices.iter();
        if has(&device.device, &text) || awaited.any(|it| has(&it.device, &text)) {
            return true;
        }
        device.groups.retain_mut(|group| {
            let named = has(&format!("group {} {}", group.group, group.mode), &text);
            let is_meant = |member: &Member| named || is_named(member, &text);
            group.members.retain(is_meant);
            !group.members.is_empty()
        });
        let named = has(NO_GROUP, &text);
        let is_meant = |member: &Member| named || is_named(member, &text);
        device.sockets.retain(is_meant);
        !device.groups.is_empty() || !device.sockets.is_empty()
    });
    view
}

/// A member's class as the screen shows it. The default class is not shown, because most groups
/// have no other class.
pub(crate) fn class(member: &Member) -> String {
    let class = member.class.filter(|&class| class != 0);
    class.map_or_else(String::new, |class| format!(" class {class}"))
}

/// Name of the row for a device's sockets outside any group.
pub(crate) const NO_GROUP: &str = "no group";

fn is_named(member: &Member, text: &str) -> bool {
    let pid = member.pid.map_or_else(String::new, |pid| pid.to_string());
    let program = member.program.as_deref().unwrap_or_default();
    let class = class(member);
    let name = format!("{pid} {program}{class} socket {}", member.socket);
    has(&name, text)
}

/// Whether a name contains a lower-case text. Numbers match as a whole: `7` does not match `4711`.
fn has(name: &str, text: &str) -> bool {
    let name = name.to_lowercase();
    let is_digit = |letter: Option<char>| letter.is_some_and(|it| it.is_ascii_digit());
    let begins = is_digit(text.chars().next());
    let ends = is_digit(text.chars().next_back());
    name.match_indices(text).any(|(at, found)| {
        let (before, after) = (&name[..at], &name[at + found.len()..]);
        let cut_before = begins && is_digit(before.chars().next_back());
        let cut_after = ends && is_digit(after.chars().next());
        !cut_before && !cut_after
    })
}

/// Sorts groups within their device and members within their group. Unknown values come last in
/// both directions. Groups with equal values are sorted by number, and members with equal values by
/// pid and socket.
pub(crate) fn sort(view: &mut View, column: Column, reverse: bool) {
    let descending = column.is_descending() != reverse;
    for device in &mut view.devices {
        for group in &mut device.groups {
            sort_members(&mut group.members, column, descending);
        }
        sort_members(&mut device.sockets, column, descending);
        device.groups.sort_by(|one, other| {
            let figures = (figure_of_group(one, column), figure_of_group(other, column));
            compare(figures, descending).then(one.group.cmp(&other.group))
        });
    }
}

fn sort_members(members: &mut [Member], column: Column, descending: bool) {
    members.sort_by(|one, other| {
        let order = if column == Column::Program {
            compare((one.program.as_ref(), other.program.as_ref()), descending)
        } else {
            compare((figure(one, column), figure(other, column)), descending)
        };
        order
            .then(one.pid.cmp(&other.pid))
            .then(one.socket.cmp(&other.socket))
    });
}

fn compare<T: PartialOrd>((one, other): (Option<T>, Option<T>), descending: bool) -> Ordering {
    match (one, other) {
        (Some(one), Some(other)) => {
            let order = one.partial_cmp(&other).unwrap_or(Ordering::Equal);
            if descending { order.reverse() } else { order }
        }
        (one, other) => other.is_some().cmp(&one.is_some()),
    }
}

fn figure(member: &Member, column: Column) -> Option<f64> {
    match column {
        Column::Pps => member.packets_per_second,
        Column::Drops => member.ring_full_drops_per_second,
        Column::Dropped => member.ring_full_drops_total.map(approximate),
        Column::Backlog => member.backlog_packets.map(approximate),
        Column::Pid => member.pid.map(f64::from),
        Column::Program => None,
        Column::Age => member.counters_age_seconds,
    }
}

fn figure_of_group(group: &Group, column: Column) -> Option<f64> {
    match column {
        Column::Pps => group.packets_per_second,
        Column::Drops => group.ring_full_drops_per_second,
        Column::Dropped => group.ring_full_drops_total.map(approximate),
        Column::Backlog => group.backlog_packets.map(approximate),
        Column::Pid | Column::Program | Column::Age => None,
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "only the order of the numbers counts"
)]
fn approximate(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::fixture;

    fn pids(view: &View) -> Vec<Option<u32>> {
        let group = &view.devices[0].groups[0];
        group.members.iter().map(|member| member.pid).collect()
    }

    #[test]
    fn what_is_unknown_comes_last_whichever_way_round() {
        let mut view = fixture::view();
        sort(&mut view, Column::Pps, false);
        assert_eq!(
            pids(&view),
            [Some(4711), Some(4713), Some(4712), Some(4714)]
        );
        sort(&mut view, Column::Pps, true);
        assert_eq!(
            pids(&view),
            [Some(4713), Some(4711), Some(4712), Some(4714)]
        );
        sort(&mut view, Column::Pid, false);
        assert_eq!(
            pids(&view),
            [Some(4711), Some(4712), Some(4713), Some(4714)]
        );
    }

    #[test]
    fn groups_are_sorted_by_their_sums() {
        let numbers = |view: &View| -> Vec<u16> {
            let groups = &view.devices[0].groups;
            groups.iter().map(|group| group.group).collect()
        };
        let mut view = fixture::view();
        sort(&mut view, Column::Pps, false);
        assert_eq!(numbers(&view), [7, 42]);
        sort(&mut view, Column::Pps, true);
        // Foreign members have no rates, so their group stays last.
        assert_eq!(numbers(&view), [7, 42]);
    }

    #[test]
    fn each_column_follows_and_the_first_comes_again() {
        let all = Column::value_variants();
        let walked = all.iter().fold(Column::Pps, |column, _| column.next());
        assert_eq!(walked, Column::Pps);
        for column in all {
            let value = column.to_possible_value().unwrap();
            assert_eq!(value.get_name(), column.name());
        }
    }

    #[test]
    fn a_filter_names_devices_groups_programs_and_processes() {
        let members = |text: &str| {
            let view = filter(fixture::view(), text);
            let devices = view.devices.iter();
            let sockets = devices.flat_map(|device| {
                let grouped = device.groups.iter().flat_map(|group| &group.members);
                grouped.chain(&device.sockets)
            });
            sockets.count()
        };
        assert_eq!(members(""), 7);
        assert_eq!(members("ETH0"), 6);
        assert_eq!(members("42"), 1);
        assert_eq!(members("tcpd"), 4);
        assert_eq!(members("4713"), 1);
        // Numbers match as a whole: group 7 is not process 4711.
        assert_eq!(members("7"), 4);
        assert_eq!(members("nobody"), 0);
        // The filter's text is compared with the names as the screen shows them, such as `group 7`
        // or `no group`, in any case of letters.
        assert_eq!(members("group 7"), 4);
        assert_eq!(members("Group 42 qm"), 1);
        assert_eq!(members("hash+defrag"), 4);
        assert_eq!(members("no group"), 2);
        assert_eq!(members("4713 tcpdump"), 1);
        assert_eq!(members("socket 22"), 1);
        assert_eq!(members("group 4"), 0);
    }
}
