//! A group as a table for users.

use fanpcap_config::report::harmless_text;
use fanpcap_snapshot::{Offered, STEERED_NOWHERE};
use fanpcap_terminal::table;

use super::shown::{Big, PLACEHOLDER, Rounds, Shown, Slot, Sums};
use crate::top::figure::{UNKNOWN, age, bytes};

/// The columns' titles.
const TITLES: [&str; 11] = [
    "SLOT", "STATE", "BUCKETS", "SHARE", "WEIGHT", "CLASS", "SINCE", "RING", "LIBRARY", "PID",
    "PROGRAM",
];

/// The whole text.
pub(super) fn page(shown: &Shown) -> String {
    let mut lines = vec![headline(shown)];
    if let Some(founder) = &shown.founder {
        let waits = match shown.members_total {
            0 => ", waits for members",
            _ => "",
        };
        lines.push(format!("founded by {founder}{waits}"));
    }
    if !shown.slots.is_empty() {
        lines.extend(table(shown));
    }
    if let (Some(buckets), Some(ago)) = (shown.last_moved_buckets, shown.last_moved_seconds_ago) {
        lines.push(match buckets {
            0 => format!("last change {} ago: no bucket moved", age(ago)),
            _ => format!("last change {} ago: {buckets} buckets moved", age(ago)),
        });
    }
    if let Some(number) = shown.takeovers_total.filter(|&number| number > 0) {
        lines.push(format!(
            "members replaced by successors with the same name: {number}"
        ));
    }
    if let Some(why) = shown.stolen_from_host {
        lines.push(format!(
            "stolen from the host, which may need the packets of {}: {why}",
            shown.device
        ));
    }
    if let Some(change) = &shown.under_way {
        lines.push(format!("under way: {change}"));
    }
    if let Some(gone) = shown.gone.filter(|it| it.members_total > 0) {
        lines.push(sums(&gone));
    }
    lines.extend(shown.ledger.iter().flat_map(ledger));
    if let (None, Some(packets @ 1..)) = (&shown.ledger, shown.steered_nowhere_packets_total) {
        lines.push(format!("{packets} packets {STEERED_NOWHERE}"));
    }
    if let Some(balance) = &shown.balance {
        lines.push(rounds(balance));
        lines.extend(balance.elephants.iter().map(elephant));
    }
    if !shown.is_steered {
        lines.push(format!(
            "mode {} of the kernel has no table: a member that joins or leaves also moves flows of other members",
            shown.mode
        ));
    }
    lines.extend(by_rank(&shown.mode).filter(|_| shown.is_steered));
    if let Some(why) = &shown.hash_because {
        lines.push(format!("hash, not flow, because {why}"));
    }
    let lines: Vec<String> = lines
        .iter()
        .map(|it| harmless_text(it.trim_end()))
        .collect();
    lines.join("\n") + "\n"
}

/// A member, as messages name it.
pub(super) fn name(member: &Slot) -> String {
    let pid = number(member.pid);
    let program = member.program.as_deref().unwrap_or(UNKNOWN);
    let slot = member.slot.map(|slot| format!(" (slot {slot})"));
    format!("{pid} {program}{}", slot.unwrap_or_default())
}

fn headline(shown: &Shown) -> String {
    let Shown {
        device,
        group,
        mode,
        members_total,
        placeholders_total,
        ..
    } = shown;
    let members = counted(*members_total, "member");
    let placeholders = match placeholders_total {
        0 => String::new(),
        number => format!(
            ", {} of members that are gone ({} of rings)",
            counted(*number, "slot"),
            bytes(shown.placeholders_ring_bytes)
        ),
    };
    format!("{device} group {group}: {mode}, {members}{placeholders}")
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn table(shown: &Shown) -> Vec<String> {
    let mut rows = vec![TITLES.map(str::to_owned).to_vec()];
    rows.extend(shown.slots.iter().map(cells));
    // For a group without a table, most columns are empty.
    let rows = table::without_empty(&rows, |_, cell| cell == UNKNOWN);
    let is_left =
        |column: usize| ["STATE", "LIBRARY", "PROGRAM"].contains(&rows[0][column].as_str());
    table::lines(&rows, is_left)
}

fn cells(slot: &Slot) -> Vec<String> {
    let state = match slot.heir_slot {
        Some(taker) if slot.state == PLACEHOLDER => format!("{PLACEHOLDER}, read by {taker}"),
        Some(taker) => format!("{} by {taker}", slot.state),
        None if slot.is_stopped => format!("{}, stopped", slot.state),
        None => slot.state.to_owned(),
    };
    let share = slot.share_percent.map(|it| format!("{it:.1}%"));
    vec![
        number(slot.slot),
        state,
        number(slot.buckets),
        share.unwrap_or_else(|| UNKNOWN.to_owned()),
        number(slot.weight),
        // The default class is not shown, so that most groups have no column of classes.
        number(slot.class.filter(|&class| class != 0)),
        slot.state_seconds.map_or_else(|| UNKNOWN.to_owned(), age),
        slot.ring_bytes.map_or_else(|| UNKNOWN.to_owned(), bytes),
        library(slot),
        number(slot.pid),
        slot.program.clone().unwrap_or_else(|| UNKNOWN.to_owned()),
    ]
}

/// The version of the library, if it is not this command's or its file was replaced.
fn library(slot: &Slot) -> String {
    let is_replaced = slot.library_is_replaced == Some(true);
    match &slot.library_version {
        Some(version) if is_replaced => format!("{version} replaced"),
        Some(version) if version != env!("CARGO_PKG_VERSION") => version.clone(),
        Some(_) | None => UNKNOWN.to_owned(),
    }
}

fn number(number: Option<impl ToString>) -> String {
    number.map_or_else(|| UNKNOWN.to_owned(), |it| it.to_string())
}

/// The packets that reached the group, and below that line the packets of each fate.
fn ledger(ledger: &Offered) -> Vec<String> {
    let offered = ledger.offered_packets_total;
    let fates = ledger.fates().into_iter();
    let fates = fates.filter(|(packets, _)| *packets > 0);
    let width = offered.to_string().len();
    let line = |(packets, fate)| format!("  {packets:>width$} {fate}");
    let age = age(ledger.seconds_ago);
    let first = format!("{offered} packets offered to the group, counted {age} ago");
    std::iter::once(first).chain(fates.map(line)).collect()
}

/// The line about steering functions in a group's mode that do not choose members by buckets.
fn by_rank(mode: &str) -> Option<String> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut words = mode.split(|c| !is_name(c));
    let function = words.find(|it| ["steer_to", "steer_rrobin", "steer_cpu"].contains(it))?;
    Some(format!(
        "{function} chooses members by rank: BUCKETS and SHARE are only for packets of other \
         steering functions"
    ))
}

fn rounds(balance: &Rounds) -> String {
    let Rounds {
        moves_live_flows,
        rounds_total,
        busiest_above_percent,
        ..
    } = balance;
    let moves = match moves_live_flows {
        true => "all buckets may move",
        false => "buckets without live flows may move",
    };
    match rounds_total {
        0 => format!("balanced: no round yet; {moves}"),
        _ => format!(
            "balanced: in round {rounds_total} the busiest member was {busiest_above_percent:.1}% \
             above its share; {moves}"
        ),
    }
}

fn elephant(elephant: &Big) -> String {
    let Big {
        bucket,
        slot,
        packets_percent,
    } = elephant;
    format!(
        "elephant: bucket {bucket} of slot {slot} has {packets_percent:.1}% of all packets, more \
         than a member's share; it stays there"
    )
}

fn sums(gone: &Sums) -> String {
    let Sums {
        members_total,
        received_packets_total,
        dropped_packets_total,
        taken_packets_total,
        inherited_packets_total,
        unread_packets_total,
        unknown_members_total,
    } = gone;
    let unknown = match unknown_members_total {
        0 => String::new(),
        number => format!("; the counters of {number} of them are incomplete"),
    };
    format!(
        "gone so far: {members_total}, which had received {received_packets_total} packets \
         ({dropped_packets_total} dropped, {taken_packets_total} taken by these members, \
         {inherited_packets_total} taken afterwards by other members, {unread_packets_total} unread){unknown}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_that_a_function_does_not_use_have_a_note() {
        let shown = |mode: &str, is_steered| {
            let shown = Shown {
                mode: mode.to_owned(),
                is_steered,
                ..Shown::default()
            };
            page(&shown)
        };
        let note = |function: &str| {
            format!(
                "\n{function} chooses members by rank: BUCKETS and SHARE are only for packets of \
                 other steering functions\n"
            )
        };
        let mode = "on xdp: main = if has_port 53 then steer_to 0 else steer_flow";
        assert!(shown(mode, true).ends_with(&note("steer_to")));
        assert!(shown("main = steer_cpu", true).ends_with(&note("steer_cpu")));
        for (mode, is_steered) in [("flow", true), ("main = steer_flow", true), ("cpu", false)] {
            let text = shown(mode, is_steered);
            assert!(!text.contains("by rank"), "{text}");
        }
    }

    #[test]
    fn rounds_and_elephants_are_told() {
        let big = Big {
            bucket: 100,
            slot: 2,
            packets_percent: 51.3,
        };
        let balance = Rounds {
            moves_live_flows: true,
            rounds_total: 7,
            busiest_above_percent: 42.0,
            elephants: vec![big],
        };
        assert_eq!(
            rounds(&balance),
            "balanced: in round 7 the busiest member was 42.0% above its share; all buckets may move"
        );
        assert_eq!(
            elephant(&big),
            "elephant: bucket 100 of slot 2 has 51.3% of all packets, more than a member's share; \
             it stays there"
        );
    }
}
