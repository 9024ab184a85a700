//! What a device's receive queues have counted, and the summary.

use fanpcap_linux::wait::clock;
use fanpcap_poller::{GroupCounts, SentCounts, SourceCounts};
use fanpcap_terminal::table;

use super::place::Place;

/// The counts of a device.
#[derive(Clone, Debug)]
pub(super) struct Totals {
    place: Place,
    /// The counts of each receive queue.
    queues: Vec<SourceCounts>,
    /// The counts of all groups.
    groups: GroupCounts,
    /// The frames of members.
    sent: SentCounts,
}

impl Totals {
    pub(super) fn new(place: &Place) -> Self {
        Self {
            place: place.clone(),
            queues: Vec::new(),
            groups: GroupCounts::default(),
            sent: SentCounts::default(),
        }
    }

    /// Adds what became of the frames of members.
    pub(super) fn add_sent(&mut self, more: SentCounts) {
        self.sent.sent += more.sent;
        self.sent.failed += more.failed;
    }

    /// Adds the counts of the device's queues and groups, when the device was removed, or at the
    /// end.
    pub(super) fn add(&mut self, queues: &[SourceCounts], groups: &GroupCounts) {
        let len = self.queues.len().max(queues.len());
        self.queues.resize(len, SourceCounts::default());
        for (sum, more) in self.queues.iter_mut().zip(queues) {
            add(sum, *more);
        }
        self.groups.add_all(groups);
    }

    /// What else the device's queues have counted. `None` if there is nothing.
    fn notes(&self) -> Option<String> {
        let mut sum = SourceCounts::default();
        self.queues.iter().for_each(|it| add(&mut sum, *it));
        let all = [
            ("packets that came twice, left out once", sum.skipped),
            ("times without memory for a packet", sum.starved),
            ("packets with errors", sum.faulty),
            ("reads of the kernel's counters that failed", sum.failed),
            ("frames of members sent", self.sent.sent),
            ("frames of members not sent", self.sent.failed),
        ];
        let notes = all.into_iter().filter(|(_, count)| *count > 0);
        let notes: Vec<String> = notes.map(|(what, it)| format!("{it} {what}")).collect();
        let text = format!("{}, queues: {}", self.place, notes.join(", "));
        (!notes.is_empty()).then_some(text)
    }

    /// The sum of what became of the packets for groups. `None` if no packet came to a group.
    fn ledger(&self) -> Option<String> {
        let of = &self.groups;
        if of.offered == 0 {
            return None;
        }
        let mut text = format!("{}, groups: offered {}", self.place, of.offered);
        if of.again > 0 {
            text += &format!(" + more copies {}", of.again);
        }
        text += &format!(" = in rings {} + dropped {}", of.produced, of.dropped);
        for (what, count) in [
            ("no member", of.no_member + of.stopped),
            ("no time", of.no_time),
            ("dropped by the steering program", of.nowhere),
            ("sent by the host and not wanted", of.unwanted),
            ("left out by filters of the policy", of.not_allowed),
        ] {
            if count > 0 {
                text += &format!(" + {what} {count}");
            }
        }
        Some(text)
    }
}

/// The summary of all devices. `begin_ns` is the time at which the poller began.
pub(super) fn summary(all: &[Totals], begin_ns: u64) -> String {
    let milliseconds = clock::monotonic_ns().saturating_sub(begin_ns) / 1_000_000;
    let (seconds, milliseconds) = (milliseconds / 1000, milliseconds % 1000);
    let mut text = format!("after {seconds}.{milliseconds:03} s:\n");
    let more = |it: &Totals| [it.notes(), it.ledger()];
    let more = all.iter().flat_map(more).flatten();
    for line in lines(all).into_iter().chain(more) {
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn lines(all: &[Totals]) -> Vec<String> {
    let mut rows = vec![["device", "queue", "received", "dropped"].map(str::to_owned)];
    let mut sum = SourceCounts::default();
    for totals in all {
        for (queue, counts) in totals.queues.iter().enumerate() {
            rows.push(row(totals.place.to_string(), queue.to_string(), *counts));
            add(&mut sum, *counts);
        }
    }
    if rows.len() > 2 {
        rows.push(row("total".to_owned(), String::new(), sum));
    }
    let rows: Vec<Vec<String>> = rows.into_iter().map(Into::into).collect();
    table::lines(&rows, |column| column == 0)
}

fn add(sum: &mut SourceCounts, more: SourceCounts) {
    sum.received += more.received;
    sum.dropped += more.dropped;
    sum.skipped += more.skipped;
    sum.starved += more.starved;
    sum.faulty += more.faulty;
    sum.failed += more.failed;
}

fn row(device: String, queue: String, counts: SourceCounts) -> [String; 4] {
    let SourceCounts {
        received, dropped, ..
    } = counts;
    [device, queue, received.to_string(), dropped.to_string()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_adds_up_what_came_before_and_after_a_device_was_removed() {
        let counts = |received, dropped| SourceCounts {
            received,
            dropped,
            ..SourceCounts::default()
        };
        let none = GroupCounts::default();
        let place = |text| Place::parse(text).unwrap();
        let mut one = Totals::new(&place("packet:eth0"));
        one.add(&[counts(10, 1)], &none);
        let alone = lines(&[one.clone()]);
        assert_eq!(alone.len(), 2, "{alone:?}");
        let mut two = Totals::new(&place("afxdp:eth1"));
        two.add(&[counts(5, 0)], &none);
        two.add(&[counts(6, 0), counts(7, 2)], &none);
        assert_eq!(
            lines(&[one, two]),
            [
                "device       queue  received  dropped",
                "packet:eth0      0        10        1",
                "afxdp:eth1       0        11        0",
                "afxdp:eth1       1         7        2",
                "total                     28        3",
            ]
        );
    }

    #[test]
    fn rare_counts_are_named_if_there_are_any() {
        let mut totals = Totals::new(&Place::parse("packet:lo").unwrap());
        let counts = SourceCounts {
            skipped: 3,
            faulty: 2,
            failed: 1,
            ..SourceCounts::default()
        };
        totals.add(&[SourceCounts::default()], &GroupCounts::default());
        assert_eq!(totals.notes(), None);
        totals.add(&[counts, counts], &GroupCounts::default());
        let expected = "packet:lo, queues: 6 packets that came twice, left out once, 4 packets \
                        with errors, 2 reads of the kernel's counters that failed";
        assert_eq!(totals.notes().unwrap(), expected);
    }

    #[test]
    fn the_ledger_names_what_there_was() {
        let mut totals = Totals::new(&Place::parse("packet:eth0").unwrap());
        assert_eq!(totals.ledger(), None);
        let counts = GroupCounts {
            offered: 10,
            produced: 9,
            dropped: 1,
            ..GroupCounts::default()
        };
        totals.add(&[], &counts);
        let said = totals.ledger().unwrap();
        assert_eq!(
            said,
            "packet:eth0, groups: offered 10 = in rings 9 + dropped 1"
        );
        let counts = GroupCounts {
            offered: 5,
            again: 2,
            no_member: 3,
            not_allowed: 4,
            ..GroupCounts::default()
        };
        totals.add(&[], &counts);
        let said = totals.ledger().unwrap();
        let expected = "offered 15 + more copies 2 = in rings 9 + dropped 1 + no member 3 + \
                        left out by filters of the policy 4";
        assert!(said.ends_with(expected), "{said}");
    }
}
