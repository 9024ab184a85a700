//! The table of devices, groups and members as text. It has the columns that fit into a width.

use std::collections::BTreeMap;

use fanpcap_snapshot::{STALE_SECONDS, STEERED_NOWHERE, members_wait};
use unicode_width::UnicodeWidthStr;

use super::figure::{UNKNOWN, age, bits, bytes, count, short};
use super::order::{self, NO_GROUP};
use super::view::{AwaitedDevice, Device, Group, Member, View};

/// The kind of a row. It decides the style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The first line of the screen.
    Title,
    /// A line without a style.
    Text,
    /// The heading.
    Head,
    Device,
    /// A group, or the sockets outside any group.
    Group,
    /// The counters of a group's steering program, or its ledger.
    Counters,
    /// A member with current counters.
    Member,
    /// A device, group or member that loses packets now, or a member whose application does not
    /// read it.
    Losing,
    /// A member whose process is stopped, and the line that says so.
    Stopped,
    /// A member without current counters: foreign or stale.
    Dim,
}

/// A row of the requested width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Kind of the row.
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

/// The cells of a row. A cell is empty if the row has no number for the cell's column.
#[derive(Debug, Default)]
struct Cells {
    cpu: String,
    affinity: String,
    pps: String,
    received: String,
    share: String,
    buckets: String,
    drops: String,
    dropped: String,
    backlog: String,
    ring: String,
    age: String,
}

/// A column: its title, its width, the least table width at which it is shown, and its cell.
struct Column {
    title: &'static str,
    width: usize,
    from: usize,
    cell: fn(&Cells) -> &str,
}

/// The columns from left to right, after the name. In a narrow table, columns are left out so that
/// the name keeps at least 12 characters.
const COLUMNS: [Column; 11] = [
    column("CPU", 4, 72, |cells| &cells.cpu),
    column("AFFINITY", 9, 118, |cells| &cells.affinity),
    column("PPS", 7, 20, |cells| &cells.pps),
    column("RECEIVED", 8, 106, |cells| &cells.received),
    column("SHARE", 9, 38, |cells| &cells.share),
    column("BUCKETS", 7, 98, |cells| &cells.buckets),
    column("DROP/S", 7, 28, |cells| &cells.drops),
    column("DROPPED", 7, 46, |cells| &cells.dropped),
    column("BACKLOG", 7, 54, |cells| &cells.backlog),
    column("RING", 7, 92, |cells| &cells.ring),
    column("AGE", 5, 76, |cells| &cells.age),
];

/// Greatest width of the names.
const NAME_MAX: usize = 48;

const fn column(
    title: &'static str,
    width: usize,
    from: usize,
    cell: fn(&Cells) -> &str,
) -> Column {
    Column {
        title,
        width,
        from,
        cell,
    }
}

/// The heading.
pub(crate) fn head(width: usize) -> Row {
    let titles = |column: &Column| column.title.to_owned();
    Row {
        kind: Kind::Head,
        text: line("DEVICE, GROUP, MEMBER", width, titles),
    }
}

/// All rows below the heading, without the members if `collapsed`.
pub(crate) fn rows(view: &View, width: usize, collapsed: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    let add = |rows: &mut Vec<Row>, kind: Kind, name: &str, cells: &Cells| {
        let text = line(name, width, |column| (column.cell)(cells).to_owned());
        rows.push(Row { kind, text });
    };
    for device in &view.devices {
        for name in device_names(device) {
            add(
                &mut rows,
                or_losing(Kind::Device, device.lost_packets_per_second),
                &name,
                &device_cells(device),
            );
        }
        rows.extend(stolen(device, width));
        for group in &device.groups {
            add(
                &mut rows,
                or_losing(Kind::Group, group.ring_full_drops_per_second),
                &group_name(group),
                &group_cells(group),
            );
            rows.extend(counters(group, width));
            rows.extend(offered(group, width));
            rows.extend(stopped(group, width));
            for (name, member) in named(&group.members).filter(|_| !collapsed) {
                add(&mut rows, kind(member), &name, &member_cells(member));
            }
            for (name, cells) in of_the_gone(group).into_iter().filter(|_| !collapsed) {
                add(&mut rows, Kind::Dim, &name, &cells);
            }
        }
        // The device's own rows have the numbers of members that wait.
        let sockets = || named(&device.sockets).filter(|(_, socket)| !socket.waits_for_device);
        if let number @ 1.. = sockets().count() {
            let name = format!(" {NO_GROUP} ({number})");
            add(&mut rows, Kind::Group, &name, &Cells::default());
            for (name, member) in sockets().filter(|_| !collapsed) {
                add(&mut rows, kind(member), &name, &member_cells(member));
            }
        }
    }
    rows
}

/// A row that says that the host may need the packets that are stolen from it.
fn stolen(device: &Device, width: usize) -> Option<Row> {
    let why = device.stolen_from_host?;
    let text = format!(" stolen from the host, which may need its packets: {why}");
    Some(Row {
        kind: Kind::Losing,
        ..counters_row(&text, width)
    })
}

/// Rows about a steered group's members that are gone: one for their placeholders, and one with
/// sums over these members.
fn of_the_gone(group: &Group) -> Vec<(String, Cells)> {
    let mut rows = Vec::new();
    if group.placeholders_total > 0 {
        let name = format!("  placeholders ({})", group.placeholders_total);
        let ring = bytes(group.placeholders_ring_bytes);
        let cells = Cells {
            ring,
            ..Cells::default()
        };
        rows.push((name, cells));
    }
    if let Some(members) = group.gone_members_total.filter(|&members| members > 0) {
        let cells = Cells {
            received: number(group.gone_received_packets_total),
            dropped: number(group.gone_ring_full_drops_total),
            ..Cells::default()
        };
        rows.push((format!("  gone ({members})"), cells));
    }
    rows
}

/// A row over the whole width with the steering program's counters that are not 0. Each counter
/// has its number before it.
fn counters(group: &Group, width: usize) -> Option<Row> {
    let counters = group.program_counters.iter().flatten().enumerate();
    let used: Vec<String> = counters
        .filter(|(_, counter)| **counter != 0)
        .map(|(number, counter)| format!("{number}: {counter}"))
        .collect();
    let old = old(group.program_counters_age_seconds);
    let text = format!("  counters{old} {}", used.join(", "));
    (!used.is_empty()).then(|| counters_row(&text, width))
}

/// A row with the packets that reached a group on XDP, or of a poller, and the packets that did not
/// get into the members' rings. For a group on packet sockets, the packets that the steering
/// program dropped.
fn offered(group: &Group, width: usize) -> Option<Row> {
    let Some(ledger) = group.ledger.as_ref() else {
        let packets = group.steered_nowhere_packets_total.filter(|&it| it > 0)?;
        let text = format!("  {} packets {STEERED_NOWHERE}", count(packets));
        return Some(counters_row(&text, width));
    };
    let old = old(Some(ledger.seconds_ago));
    let fates = ledger
        .fates()
        .into_iter()
        .filter(|(packets, _)| *packets > 0);
    let fates: Vec<String> = fates
        .map(|(packets, fate)| format!("{} {fate}", count(packets)))
        .collect();
    let offered = count(ledger.offered_packets_total);
    let text = format!("  offered{old} {offered} packets ({})", fates.join(", "));
    (ledger.offered_packets_total > 0).then(|| counters_row(&text, width))
}

/// A row that says which member is stopped, and what continues it.
fn stopped(group: &Group, width: usize) -> Option<Row> {
    let member = group.members.iter().find(|it| it.is_stopped)?;
    let pid = member.pid?;
    let program = member.program.as_deref().unwrap_or(UNKNOWN);
    let text = format!("  {pid} {program} is stopped by a signal or a debugger: kill -CONT {pid}");
    Some(Row {
        kind: Kind::Stopped,
        ..counters_row(&text, width)
    })
}

/// The age of numbers in words; empty if the numbers are current.
fn old(age: Option<f64>) -> String {
    let age = age.filter(|&age| age > STALE_SECONDS);
    age.map_or_else(String::new, |age| format!(" {age:.0} s ago:"))
}

/// A row of counters over the whole width.
fn counters_row(text: &str, width: usize) -> Row {
    let room = self::width(&line("", width, |_| String::new()));
    let text = cut(text, room);
    Row {
        kind: Kind::Counters,
        text: format!("{text}{}", blanks(&text, room)),
    }
}

fn kind(member: &Member) -> Kind {
    if member.is_stopped {
        return Kind::Stopped;
    }
    if member.is_unread {
        return Kind::Losing;
    }
    if member.stale || !member.ours {
        return Kind::Dim;
    }
    or_losing(Kind::Member, member.ring_full_drops_per_second)
}

fn or_losing(kind: Kind, lost_per_second: Option<f64>) -> Kind {
    match lost_per_second {
        Some(lost) if lost > 0.0 => Kind::Losing,
        _ => kind,
    }
}

/// The names of the device's rows: one for each device for which members wait.
fn device_names(device: &Device) -> Vec<String> {
    let rate = device.received_bits_per_second.map(bits);
    let rate = rate.map_or_else(String::new, |rate| format!(" {rate}"));
    let wait = |it: &AwaitedDevice| members_wait(&it.device, it.waiting_members_total);
    match &device.awaited_devices[..] {
        [] => vec![format!("{}{rate}", device.device)],
        awaited => awaited.iter().map(wait).collect(),
    }
}

fn device_cells(device: &Device) -> Cells {
    Cells {
        pps: figure(device.received_packets_per_second),
        received: number(device.received_packets_total),
        drops: drops(device.lost_packets_per_second),
        dropped: number(device.lost_packets_total),
        ..Cells::default()
    }
}

fn group_name(group: &Group) -> String {
    let (known, all) = (group.members_with_rates, group.members_total);
    let members = match group.members.len() {
        // The number of members precedes the mode, so that a narrow table cuts off the mode, not
        // the number.
        shown if shown < all => {
            let number = group.group;
            return format!(" group {number} ({shown} of {all} shown) {}", group.mode);
        }
        _ if group.members_stopped > 0 => {
            let (number, stopped) = (group.group, group.members_stopped);
            return format!(
                " group {number} ({stopped} of {all} stopped) {}",
                group.mode
            );
        }
        _ if group.members_unread > 0 => {
            let (number, unread) = (group.group, group.members_unread);
            return format!(" group {number} ({unread} of {all} unread) {}", group.mode);
        }
        _ if known < all && known > 0 => format!("{known} of {all}"),
        _ => all.to_string(),
    };
    match group.mode.contains(" = ") {
        // The text of a steering program may be long.
        true => format!(" group {} ({members}) {}", group.group, group.mode),
        false => format!(" group {} {} ({members})", group.group, group.mode),
    }
}

fn group_cells(group: &Group) -> Cells {
    Cells {
        pps: rate(group.packets_per_second, group.members_with_rough_rates > 0),
        received: number(group.received_packets_total),
        share: group
            .skew
            .map_or_else(String::new, |skew| format!("skew {skew:.2}")),
        drops: drops(group.ring_full_drops_per_second),
        dropped: number(group.ring_full_drops_total),
        backlog: number(group.backlog_packets),
        ..Cells::default()
    }
}

/// Members with their names. If a process has several members, each name includes the member's
/// socket.
fn named(members: &[Member]) -> impl Iterator<Item = (String, &Member)> {
    let mut sockets: BTreeMap<Option<u32>, usize> = BTreeMap::new();
    for member in members {
        *sockets.entry(member.pid).or_default() += 1;
    }
    members.iter().map(move |member| {
        let several = sockets.get(&member.pid).is_some_and(|&number| number > 1);
        (member_name(member, several), member)
    })
}

fn member_name(member: &Member, several: bool) -> String {
    let pid = member
        .pid
        .map_or_else(|| "?".to_owned(), |pid| pid.to_string());
    let class = order::class(member);
    match &member.program {
        Some(program) if member.pid.is_some() && !several => format!("  {pid} {program}{class}"),
        Some(program) => format!("  {pid} {program}{class} socket {}", member.socket),
        None => format!("  {pid}{class} socket {}", member.socket),
    }
}

fn member_cells(member: &Member) -> Cells {
    let share = member.share_percent.map(|share| format!("{share:.1}%"));
    let pps = if member.is_stopped {
        "stopped".to_owned()
    } else if member.is_unread {
        "unread".to_owned()
    } else if member.stale {
        "stale".to_owned()
    } else {
        rate(member.packets_per_second, member.rate_is_rough)
    };
    Cells {
        cpu: cpu(member),
        affinity: or_unknown(member.cpu_affinity.clone()),
        pps,
        received: number(member.received_packets_total),
        share: or_unknown(share),
        buckets: buckets(member),
        drops: drops(member.ring_full_drops_per_second),
        dropped: number(member.ring_full_drops_total),
        backlog: number(member.backlog_packets),
        ring: or_unknown(member.ring_bytes.map(bytes)),
        age: or_unknown(member.counters_age_seconds.map(age)),
    }
}

/// The percentage of the buckets that the member owns.
fn buckets(member: &Member) -> String {
    match (member.buckets_percent, member.weight) {
        (Some(_), Some(0)) => "drained".to_owned(),
        (percent, _) => or_unknown(percent.map(|percent| format!("{percent:.1}%"))),
    }
}

/// The CPU on which the process last ran, with `=` if it may run on no other.
fn cpu(member: &Member) -> String {
    let alone = |list: &String| list.bytes().all(|byte| byte.is_ascii_digit());
    match (&member.cpu_affinity, member.last_cpu) {
        (Some(list), _) if alone(list) => format!("={list}"),
        (_, Some(cpu)) => cpu.to_string(),
        (_, None) => UNKNOWN.to_owned(),
    }
}

fn figure(figure: Option<f64>) -> String {
    or_unknown(figure.map(short))
}

/// A rate, marked if its window differs much from the interval.
fn rate(rate: Option<f64>, is_rough: bool) -> String {
    let mark = if is_rough { "~" } else { "" };
    or_unknown(rate.map(|rate| format!("{mark}{}", short(rate))))
}

/// Packets lost per second, with a mark that is visible without colours.
fn drops(per_second: Option<f64>) -> String {
    let mark = |&lost: &f64| if lost > 0.0 { "!" } else { "" };
    or_unknown(per_second.map(|lost| format!("{}{}", mark(&lost), short(lost))))
}

fn number(number: Option<u64>) -> String {
    or_unknown(number.map(count))
}

fn or_unknown(text: Option<String>) -> String {
    text.unwrap_or_else(|| UNKNOWN.to_owned())
}

/// A line of the name and the columns that fit.
fn line(name: &str, width: usize, cell: impl Fn(&Column) -> String) -> String {
    let shown = || COLUMNS.iter().filter(|column| column.from <= width);
    let taken: usize = shown().map(|column| column.width + 1).sum();
    let room = width.saturating_sub(taken).clamp(1, NAME_MAX);
    let name = cut(name, room);
    let mut line = format!("{name}{}", blanks(&name, room));
    for column in shown() {
        let text = cut(&cell(column), column.width);
        line += &format!(" {}{text}", blanks(&text, column.width));
    }
    line
}

/// Blanks that pad a text to `room` columns.
fn blanks(text: &str, room: usize) -> String {
    " ".repeat(room.saturating_sub(width(text)))
}

/// The width of a text in terminal columns: some characters need two columns or none.
pub(crate) fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// A text without control characters and characters that change the writing direction. Names of
/// processes and devices may contain them.
fn clean(text: &str) -> String {
    let clean = |c: char| if c.is_control() || turns(c) { '?' } else { c };
    text.chars().map(clean).collect()
}

/// A clean text of at most `room` columns.
pub(crate) fn fit(text: &str, room: usize) -> String {
    let mut text = clean(text);
    while width(&text) > room && text.pop().is_some() {}
    text
}

/// A clean text of at most `room` columns, with a mark if it was cut.
pub(crate) fn cut(text: &str, room: usize) -> String {
    let mut text = clean(text);
    if width(&text) <= room {
        return text;
    }
    while width(&text) + 1 > room && text.pop().is_some() {}
    text + "…"
}

/// Whether a character changes the writing direction: the embedding, override, isolate and mark
/// characters of the bidirectional algorithm (UAX #9, section 2).
fn turns(letter: char) -> bool {
    matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}')
}

#[cfg(test)]
mod tests;
