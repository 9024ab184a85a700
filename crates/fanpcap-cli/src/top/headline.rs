//! The two lines above the table. The first shows the user's choices, the time and the machine. The
//! second shows what one device receives and loses.

use super::figure::{UNKNOWN, bits, count, short};
use super::state::State;
use super::table;
use super::view::{Device, View};

/// The first line: the user's choices, the time, the machine and the network namespace. If the line
/// is narrow, the last parts are left out.
pub(crate) fn title(view: &View, state: &State, width: usize) -> String {
    let descending = state.sort.is_descending() != state.reverse;
    let filter = format!("filter {}", state.filter);
    let is_filtered = !state.filter.is_empty() && state.typing.is_none();
    let name = view.network_namespace_name.as_ref();
    let name = name.map_or_else(String::new, |name| format!(" ({name})"));
    let parts = [
        state.paused.then(|| "PAUSED".to_owned()),
        Some("fanpcap top".to_owned()),
        is_filtered.then_some(filter),
        Some(format!(
            "sort {} {}",
            state.sort.name(),
            if descending { "▼" } else { "▲" }
        )),
        Some(time(view.time_unix_seconds)),
        Some(view.host.clone()),
        Some(format!("netns {}{name}", view.network_namespace)),
    ];
    let mut parts: Vec<String> = parts.into_iter().flatten().collect();
    let taken = |parts: &[String]| parts.iter().map(|it| table::width(it) + 2).sum::<usize>() - 2;
    // On a narrow line, the marks for a paused view and for a filter precede the command's name.
    let marks = usize::from(state.paused) + usize::from(is_filtered);
    while parts.len() > marks.max(1) && taken(&parts) > width {
        let name = usize::from(state.paused);
        let last = parts.len() - 1;
        parts.remove(if last > marks { last } else { name });
    }
    table::cut(&parts.join("  "), width)
}

/// The second line: the packets that one device receives and loses. This is the device that loses
/// most, or the busiest device if none loses packets.
pub(crate) fn devices(view: &View, width: usize) -> String {
    let mut shown = view.devices.first();
    for device in view.devices.iter().skip(1) {
        // A device whose rates are unknown ranks below a device that receives nothing.
        if shown.is_none_or(|other| rank(device) > rank(other)) {
            shown = Some(device);
        }
    }
    let Some(device) = shown else {
        return String::new();
    };
    let known = |text: Option<String>| text.unwrap_or_else(|| UNKNOWN.to_owned());
    let figure = |figure: Option<f64>| known(figure.map(short));
    let total = |number: Option<u64>| known(number.map(count));
    let which = match view.devices.len() {
        0 | 1 => "",
        _ if lost(device) > Some(0.0) => "losing: ",
        _ => "busiest: ",
    };
    let line = format!(
        "{which}{} {} pps {}, lost {}/s: rings {} device {}",
        device.device,
        figure(device.received_packets_per_second),
        known(device.received_bits_per_second.map(bits)),
        figure(lost(device)),
        figure(rings(device)),
        figure(device.lost_packets_per_second),
    );
    let fifo = device.fifo_errors_total.filter(|&overruns| overruns > 0);
    let fifo = fifo.map_or_else(String::new, |it| format!(" overruns {}", count(it)));
    let totals = format!(
        "{line} (in all: dropped {} missed {}{fifo})",
        total(device.dropped_packets_total),
        total(device.missed_packets_total),
    );
    let fits = table::width(&totals) <= width;
    if fits { totals } else { line }
}

/// Whether any device, or a member's ring on it, loses packets.
pub(crate) fn is_losing(view: &View) -> bool {
    view.devices.iter().any(|device| lost(device) > Some(0.0))
}

fn rank(device: &Device) -> (Option<f64>, Option<f64>) {
    let lost = lost(device).filter(|&lost| lost > 0.0);
    (lost, device.received_packets_per_second)
}

/// Packets per second that the device and the rings of its groups lose.
fn lost(device: &Device) -> Option<f64> {
    let both = [rings(device), device.lost_packets_per_second];
    both.into_iter().flatten().reduce(|one, other| one + other)
}

/// Packets per second lost to full rings.
fn rings(device: &Device) -> Option<f64> {
    let groups = device.groups.iter();
    let drops = groups.filter_map(|group| group.ring_full_drops_per_second);
    drops.reduce(|one, other| one + other)
}

/// The time of day, UTC.
fn time(unix_seconds: f64) -> String {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a day's seconds, without the fraction"
    )]
    let of_day = unix_seconds.rem_euclid(86_400.0) as i32;
    let (hours, minutes) = (of_day / 3600, of_day / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02} UTC", of_day % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::fixture;

    #[test]
    fn the_headline_has_what_the_rings_lose_too() {
        let line = devices(&fixture::view(), 80);
        assert_eq!(
            line,
            "losing: eth0 812k pps 6.52 Gbit/s, lost 1264/s: rings 1234 device 30"
        );
        assert!(is_losing(&fixture::view()));
        let wide = devices(&fixture::view(), 132);
        let totals = wide.strip_prefix(&line);
        assert_eq!(totals, Some(" (in all: dropped 120 missed 5)"));
    }

    #[test]
    fn a_filter_and_a_hold_are_seen_at_any_width() {
        let state = State {
            filter: "suricata-main".to_owned(),
            paused: true,
            ..State::default()
        };
        let shown = |width| title(&fixture::view(), &state, width);
        for width in [28, 40, 80, 132] {
            let line = shown(width);
            assert!(line.starts_with("PAUSED  "), "{line}");
            assert!(line.contains("filter suricata-main"), "{line}");
            assert!(table::width(&line) <= width, "{line}");
        }
        assert!(shown(132).ends_with("netns 4026531840 (host)"));
    }
}
