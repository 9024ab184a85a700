//! The end: what each thread did, exactly, and whether the figures agree.

use anyhow::Result;
use fanpcap_linux::pcap::FanoutStats;
use serde::Serialize;

use super::counts::{self, Counts};
use super::interval::{lossy, seconds};
use super::link;
use super::table;

/// All that there is to say. As JSON, it is the last line of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    kind: &'static str,
    seconds: f64,
    threads: Vec<Totals>,
    total: Totals,
    link: Option<LinkTotals>,
    group: Option<Group>,
    /// Whether `received_by_filter` is the sum of `captured` and `dropped_by_kernel`; none for a savefile.
    adds_up: Option<bool>,
}

/// The totals of a thread, or of all.
#[derive(Debug, Serialize)]
struct Totals {
    captured: u64,
    bytes: u64,
    /// Of all that was captured, in percent.
    share: Option<f64>,
    received_by_filter: Option<u64>,
    dropped_by_kernel: Option<u64>,
    dropped_by_interface: Option<u64>,
    /// Received, but neither captured nor dropped.
    left: Option<i64>,
    cpu_ns: u64,
    cpu_ns_per_packet: Option<f64>,
}

/// What the device counted meanwhile.
#[derive(Clone, Copy, Debug, Serialize)]
struct LinkTotals {
    received: u64,
    dropped: u64,
}

/// What the group's members say, of all processes.
#[derive(Clone, Copy, Debug, Serialize)]
struct Group {
    number: i32,
    members: Option<u64>,
    received: Option<u64>,
    dropped: Option<u64>,
}

impl Summary {
    /// Of the threads' last counters.
    pub(super) fn of(
        nanoseconds: u64,
        threads: &[Counts],
        link: Option<link::Counters>,
        group: Option<FanoutStats>,
    ) -> Self {
        let total = counts::sum(threads.iter().copied());
        let mut lefts = threads.iter().map(Counts::left);
        Self {
            kind: "summary",
            seconds: seconds(nanoseconds),
            threads: threads
                .iter()
                .map(|counts| Totals::of(counts, &total))
                .collect(),
            total: Totals::of(&total, &total),
            link: link.map(|link| LinkTotals {
                received: link.received,
                dropped: link.dropped,
            }),
            group: group.map(|group| Group {
                number: group.group,
                members: group.members,
                received: group.group_received,
                dropped: group.group_dropped,
            }),
            adds_up: total.kernel.map(|_| lefts.all(|left| left == Some(0))),
        }
    }

    /// As a line of JSON.
    pub(super) fn json(&self) -> Result<String> {
        Ok(serde_json::to_string(self)?)
    }

    /// As text, with exact numbers. At `count` packets the program was to end, if they came.
    pub(super) fn text(&self, count: Option<u64>) -> Vec<String> {
        let limited = count == Some(self.total.captured);
        let mut lines = vec![format!("after {:.3} s:", self.seconds)];
        let mut rows = vec![HEADING.map(str::to_owned).to_vec()];
        if self.threads.len() > 1 {
            let threads = self.threads.iter().enumerate();
            rows.extend(threads.map(|(number, totals)| totals.row(format!("#{number}"))));
        }
        rows.push(self.total.row("total".to_owned()));
        lines.extend(table::lines(&rows));
        lines.extend(self.figures());
        lines.extend(self.sum(limited));
        lines.extend(self.group_line());
        lines
    }

    /// The paper's four figures.
    fn figures(&self) -> Option<String> {
        let link = self.link?;
        let (captured, dropped) = (self.total.captured, self.total.dropped_by_kernel?);
        Some(format!(
            "link received {}, interface dropped {}, application received {captured}, application dropped \
             {dropped}",
            link.received, link.dropped
        ))
    }

    /// Whether they agree.
    fn sum(&self, limited: bool) -> Vec<String> {
        let total = &self.total;
        let (Some(received), Some(dropped)) = (total.received_by_filter, total.dropped_by_kernel)
        else {
            return Vec::new();
        };
        let left = match (self.adds_up, total.left) {
            (Some(true), _) => ": adds up".to_owned(),
            (_, left) if limited => {
                let left = left.unwrap_or(0);
                format!(" + left unread when the count was reached {left}")
            }
            _ => {
                // Of each thread, or what one lacks would make up for what another has too much.
                let lefts = self.threads.iter().filter_map(|totals| totals.left);
                let by: u64 = lefts.map(i64::unsigned_abs).sum();
                format!(
                    ": DOES NOT ADD UP, by {by} (packets that came before the filter was set, or a ring that \
                     was not read to its end)"
                )
            }
        };
        let captured = total.captured;
        let mut lines = vec![format!(
            "received by filter {received} = captured {captured} + dropped by kernel {dropped}{left}"
        )];
        lines.extend(self.link.map(|link| against(link.received, received)));
        lines
    }

    fn group_line(&self) -> Option<String> {
        let group = self.group?;
        let known = |number: Option<u64>| number.map_or("unknown".to_owned(), |n| n.to_string());
        Some(format!(
            "group {}: {} members, received {}, dropped {}",
            group.number,
            known(group.members),
            known(group.received),
            known(group.dropped)
        ))
    }
}

/// What the link received against what the threads did.
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
    fn of(counts: &Counts, total: &Counts) -> Self {
        let ratio = |part: u64, whole: u64| (whole > 0).then(|| lossy(part) / lossy(whole));
        Self {
            captured: counts.captured,
            bytes: counts.bytes,
            share: ratio(counts.captured, total.captured).map(|share| share * 100.0),
            received_by_filter: counts.kernel.map(|kernel| kernel.received),
            dropped_by_kernel: counts.kernel.map(|kernel| kernel.dropped),
            dropped_by_interface: counts.kernel.map(|kernel| kernel.interface_dropped),
            left: counts.left(),
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
mod tests {
    use super::super::counts::Kernel;
    use super::*;

    fn counts(captured: u64, received: u64, dropped: u64) -> Counts {
        Counts {
            captured,
            bytes: 100 * captured,
            cpu_ns: 2000 * captured,
            kernel: Some(Kernel {
                received,
                dropped,
                interface_dropped: 1,
            }),
        }
    }

    fn text(threads: &[Counts], received: u64, count: Option<u64>) -> String {
        let link = link::Counters {
            received,
            dropped: 1,
        };
        Summary::of(1_500_000_000, threads, Some(link), None)
            .text(count)
            .join("\n")
    }

    #[test]
    fn figures_that_agree_are_said_to() {
        let text = text(&[counts(30, 40, 10), counts(10, 10, 0)], 50, None);
        insta::assert_snapshot!(text, @r"
        after 1.500 s:
        thread  captured  received by filter  dropped by kernel  dropped by interface    share  CPU time  CPU/packet
            #0        30                  40                 10                     1   75.0 %   0.000 s     2000 ns
            #1        10                  10                  0                     1   25.0 %   0.000 s     2000 ns
         total        40                  50                 10                     1  100.0 %   0.000 s     2000 ns
        link received 50, interface dropped 1, application received 40, application dropped 10
        received by filter 50 = captured 40 + dropped by kernel 10: adds up
        link received 50 = received by filter 50: adds up
        ");
    }

    #[test]
    fn figures_that_disagree_are_said_to_and_by_how_much() {
        // The threads' differences cancel out in the sum, which must not hide them.
        let hidden = text(&[counts(31, 40, 10), counts(9, 10, 0)], 50, None);
        assert!(hidden.contains("DOES NOT ADD UP, by 2"), "{hidden}");
        let limited = text(&[counts(5, 40, 0)], 60, Some(5));
        assert!(
            limited.contains("left unread when the count was reached 35"),
            "{limited}"
        );
        assert!(
            limited.contains("received by filter 40 + 20 more"),
            "{limited}"
        );
        let sent = text(&[counts(5, 5, 0)], 3, None);
        assert!(
            sent.contains("received by filter 5 - 2: sent by this host"),
            "{sent}"
        );
    }

    #[test]
    fn a_savefile_has_no_kernel() {
        let counts = Counts {
            captured: 3,
            ..Counts::default()
        };
        let summary = Summary::of(1, &[counts], None, None);
        assert_eq!(summary.text(None).len(), 3);
        let json: serde_json::Value = serde_json::from_str(&summary.json().unwrap()).unwrap();
        assert!(json["adds_up"].is_null() && json["total"]["received_by_filter"].is_null());
        assert_eq!(json["total"]["captured"], 3);
    }
}
