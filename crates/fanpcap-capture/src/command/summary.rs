//! The summary: exact figures of each thread, and whether they add up.

use anyhow::{Result, bail};
use fanpcap_pcap::FanoutStats;
use fanpcap_terminal::table;
use serde::Serialize;

use super::interval::{lossy, seconds};
use super::link;
use super::slots::{self, Slot};
use crate::{Counts, Rest};

/// The summary. As JSON, it is the last line of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    kind: &'static str,
    seconds: f64,
    threads: Vec<Totals>,
    total: Totals,
    link: Option<link::Counters>,
    group: Option<Group>,
    /// Whether `received_by_filter` is the sum of `captured`, `dropped_by_kernel` and
    /// `filtered_late`; `None` for a savefile.
    adds_up: Option<bool>,
    #[serde(skip)]
    rest: Rest,
}

/// Totals of a thread, or of all threads.
#[derive(Debug, Serialize)]
struct Totals {
    captured: u64,
    /// Packets of `captured` that are in the savefile; `None` without a savefile.
    written: Option<u64>,
    bytes: u64,
    /// `captured` as a percentage of the packets that all threads captured.
    share: Option<f64>,
    received_by_filter: Option<u64>,
    dropped_by_kernel: Option<u64>,
    dropped_by_interface: Option<u64>,
    /// Packets that were received, but then rejected by the filter in user space.
    filtered_late: Option<u64>,
    /// Packets that were received, but neither captured, nor dropped, nor filtered late.
    left: Option<i64>,
    cpu_ns: u64,
    cpu_ns_per_packet: Option<f64>,
}

/// Counters on the pages of the group's members, in all processes.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Group {
    number: u16,
    members: Option<u64>,
    received: Option<u64>,
    dropped: Option<u64>,
    /// The slots of the threads in a steered group.
    slots: Option<Vec<Slot>>,
    /// The reason why the counters are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Group {
    /// The group at the end of the capture: its number, its counters, and the slots of the threads.
    pub(super) fn of(
        number: u16,
        stats: Result<FanoutStats, fanpcap_pcap::Error>,
        slots: Option<Vec<Slot>>,
    ) -> Self {
        let mut group = Self {
            number,
            slots,
            ..Self::default()
        };
        match stats {
            Ok(stats) => {
                group.members = stats.members;
                group.received = stats.group_received;
                group.dropped = stats.group_dropped;
            }
            Err(error) => group.error = Some(error.to_string()),
        }
        group
    }

    fn line(&self) -> String {
        let number = self.number;
        if let Some(error) = &self.error {
            return format!("group {number}: its counters could not be read: {error}");
        }
        let known = |number: Option<u64>| number.map_or("unknown".to_owned(), |n| n.to_string());
        format!(
            "group {number}: {} members, received {}, dropped {}",
            known(self.members),
            known(self.received),
            known(self.dropped)
        )
    }
}

impl Summary {
    /// Builds the summary from the threads' last counters.
    pub(super) fn of(
        nanoseconds: u64,
        threads: &[Counts],
        link: Option<link::Counters>,
        group: Option<Group>,
    ) -> Self {
        let total = crate::sum(threads.iter().copied());
        // Sum the differences of each thread. In a difference of the sums, a lack of one thread
        // could hide an excess of another.
        let mut rest = Rest::default();
        (threads.iter().filter_map(Counts::rest)).for_each(|more| rest += more);
        Self {
            kind: "summary",
            seconds: seconds(nanoseconds),
            threads: threads
                .iter()
                .map(|counts| Totals::of(counts, counts.rest(), &total))
                .collect(),
            total: Totals::of(&total, total.kernel.map(|_| rest), &total),
            link,
            group,
            adds_up: total.kernel.map(|_| rest.unread == 0 && rest.off == 0),
            rest,
        }
    }

    /// Checks that each thread's counters add up. Unread packets are no error.
    ///
    /// # Errors
    /// Packets appeared or disappeared, and no counter explains that.
    pub(super) fn verdict(&self) -> Result<()> {
        match self.rest.off {
            0 => Ok(()),
            off => bail!(
                "the figures disagree by {off} packets: for a thread, received by filter differs \
                 from captured + dropped by kernel + filtered late; please report this with the summary"
            ),
        }
    }

    /// The summary as a line of JSON.
    pub(super) fn json(&self) -> Result<String> {
        Ok(serde_json::to_string(self)?)
    }

    /// The summary as text, with exact numbers. `count` is the limit of --count.
    pub(super) fn text(&self, count: Option<u64>) -> Vec<String> {
        let limited = count == Some(self.total.captured);
        let mut lines = vec![format!("after {:.3} s:", self.seconds)];
        let mut rows = vec![HEADING.map(str::to_owned).to_vec()];
        if self.threads.len() > 1 {
            let threads = self.threads.iter().enumerate();
            rows.extend(threads.map(|(number, totals)| totals.row(format!("#{number}"))));
        }
        rows.push(self.total.row("total".to_owned()));
        let table = table::lines(&rows, |_| false);
        lines.extend(table.iter().map(|line| line.trim_end().to_owned()));
        lines.extend(self.figures());
        lines.extend(self.sum(limited));
        lines.extend(self.written());
        lines.extend(self.group.as_ref().map(Group::line));
        let slots = self.group.as_ref().and_then(|it| it.slots.as_deref());
        lines.extend(slots.map(slots::line));
        lines
    }

    /// The line with the four counters of link, interface and application.
    fn figures(&self) -> Option<String> {
        let link = self.link?;
        let (captured, dropped) = (self.total.captured, self.total.dropped_by_kernel?);
        Some(format!(
            "link received {}, interface dropped {}, application received {captured}, application dropped \
             {dropped}",
            link.received, link.dropped
        ))
    }

    /// The lines that say whether the counters add up.
    fn sum(&self, limited: bool) -> Vec<String> {
        let total = &self.total;
        let (Some(received), Some(dropped)) = (total.received_by_filter, total.dropped_by_kernel)
        else {
            return Vec::new();
        };
        let Rest { late, unread, off } = self.rest;
        let mut left = String::new();
        if late > 0 {
            left += &format!(" + filtered late {late}");
        }
        if unread > 0 {
            let when = if limited {
                " when the count was reached"
            } else {
                ""
            };
            left += &format!(" + left unread{when} {unread}");
        }
        if off > 0 {
            left += &format!(": DOES NOT ADD UP, by {off}");
        } else if unread == 0 {
            left += ": adds up";
        }
        let captured = total.captured;
        let mut lines = vec![format!(
            "received by filter {received} = captured {captured} + dropped by kernel {dropped}{left}"
        )];
        lines.extend(self.link.map(|link| against(link.received, received)));
        lines
    }

    fn written(&self) -> Option<String> {
        let (captured, written) = (self.total.captured, self.total.written?);
        Some(match captured.saturating_sub(written) {
            0 => format!("captured {captured} = written {written}"),
            lost => format!("captured {captured} = written {written} + NOT WRITTEN {lost}"),
        })
    }
}

/// Compares the link's received packets with the threads' packets.
fn against(link: u64, received: u64) -> String {
    match link.checked_sub(received) {
        Some(0) => format!("link received {link} = received by filter {received}: adds up"),
        Some(more) => format!(
            "link received {link} = received by filter {received} + {more} more: rejected by a filter, taken \
             by other members of the group, or received while the handles were opened and closed"
        ),
        None => format!(
            "link received {link} = received by filter {received} - {}: sent by this host, which is captured \
             too",
            received - link
        ),
    }
}

const HEADING: [&str; 8] = [
    "thread",
    "captured",
    "received by filter",
    "dropped by kernel",
    "dropped by interface",
    "share",
    "CPU time",
    "CPU/packet",
];

impl Totals {
    fn of(counts: &Counts, rest: Option<Rest>, total: &Counts) -> Self {
        let late = rest.map(|rest| rest.late);
        let ratio = |part: u64, whole: u64| (whole > 0).then(|| lossy(part) / lossy(whole));
        Self {
            captured: counts.captured,
            written: counts.written,
            bytes: counts.bytes,
            share: ratio(counts.captured, total.captured).map(|share| share * 100.0),
            received_by_filter: counts.kernel.map(|kernel| kernel.received),
            dropped_by_kernel: counts.kernel.map(|kernel| kernel.dropped),
            dropped_by_interface: counts.kernel.map(|kernel| kernel.interface_dropped),
            filtered_late: late,
            left: counts
                .left()
                .zip(late.map(i64::try_from))
                .and_then(|(left, late)| Some(left - late.ok()?)),
            cpu_ns: counts.cpu_ns,
            cpu_ns_per_packet: ratio(counts.cpu_ns, counts.captured),
        }
    }

    fn row(&self, name: String) -> Vec<String> {
        let known = |number: Option<u64>| number.map(|n| n.to_string()).unwrap_or_default();
        vec![
            name,
            self.captured.to_string(),
            known(self.received_by_filter),
            known(self.dropped_by_kernel),
            known(self.dropped_by_interface),
            self.share
                .map(|share| format!("{share:.1} %"))
                .unwrap_or_default(),
            format!("{:.3} s", seconds(self.cpu_ns)),
            self.cpu_ns_per_packet
                .map(|ns| format!("{ns:.0} ns"))
                .unwrap_or_default(),
        ]
    }
}

#[cfg(test)]
mod tests;
