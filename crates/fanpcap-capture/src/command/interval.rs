//! The line printed once a second: rates of each thread and of all threads.

use crate::{Counts, ThreadCounts};
use std::ops::AddAssign;

use anyhow::Result;
use serde::Serialize;

use super::link;
use super::quantity::short;

/// The rates of one interval. As JSON, it is one line of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Interval {
    kind: &'static str,
    /// Seconds from the time at which the first handle began to receive.
    seconds: f64,
    threads: Vec<Rates>,
    total: Rates,
    link: Option<LinkRates>,
}

/// Counters and rates of a thread, or of all threads together.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Rates {
    /// Packets captured since the start.
    captured: u64,
    /// Packets received since the start, as counted by the kernel; `None` for a savefile.
    received_by_filter: Option<u64>,
    dropped_by_kernel: Option<u64>,
    captured_per_second: f64,
    bits_per_second: f64,
    /// Packets per second that were dropped because the ring was full, called "application dropped"
    /// in the summary; `None` for a savefile.
    dropped_per_second: Option<f64>,
}

/// Rates of the device.
#[derive(Clone, Copy, Debug, Serialize)]
struct LinkRates {
    received_per_second: f64,
    dropped_per_second: f64,
}

impl Interval {
    /// Rates between the threads' counters in `before` and in `now`. If a thread has answered no
    /// request between the two, its counters are the same in both, and its rates are 0.
    pub(super) fn between(
        start_ns: u64,
        before: &[ThreadCounts],
        now: &[ThreadCounts],
        link: Option<(link::Counters, u64)>,
    ) -> Self {
        let threads: Vec<Rates> = now
            .iter()
            .zip(before)
            .map(|(now, before)| Rates::of(now, before))
            .collect();
        let last_ns = now.iter().map(|told| told.at_ns).max().unwrap_or(0);
        let link = link.map(|(counted, nanoseconds)| LinkRates {
            received_per_second: rate(counted.received, nanoseconds),
            dropped_per_second: rate(counted.dropped, nanoseconds),
        });
        Self {
            kind: "interval",
            seconds: seconds(last_ns.saturating_sub(start_ns)),
            total: Rates::sum(&threads),
            threads,
            link,
        }
    }

    /// The interval as a line of JSON.
    pub(super) fn json(&self) -> Result<String> {
        Ok(serde_json::to_string(self)?)
    }

    /// The interval as table rows: a row for each thread if there are several threads, then a row
    /// for their sum.
    pub(super) fn rows(&self, pretty: bool) -> Vec<String> {
        let write = |number: f64| {
            if pretty {
                short(number)
            } else {
                format!("{number:.0}")
            }
        };
        let row = |name: String, rates: &Rates, link: Option<LinkRates>| {
            let dropped = rates.dropped_per_second.map(write);
            let cells = [
                name,
                write(lossy(rates.captured)),
                write(rates.captured_per_second),
                write(rates.bits_per_second),
                dropped.unwrap_or_default(),
                link.map(|link| write(link.received_per_second))
                    .unwrap_or_default(),
                link.map(|link| write(link.dropped_per_second))
                    .unwrap_or_default(),
            ];
            line(&cells)
        };
        let mut rows = Vec::new();
        if self.threads.len() > 1 {
            let threads = self.threads.iter().enumerate();
            rows.extend(threads.map(|(number, rates)| row(format!("#{number}"), rates, None)));
        }
        rows.push(row("total".to_owned(), &self.total, self.link));
        rows
    }
}

/// The table's heading.
pub(super) fn heading() -> String {
    line(&HEADING.map(str::to_owned))
}

fn line(cells: &[String; 7]) -> String {
    let cells = cells.iter().zip(WIDTHS);
    let cells: Vec<String> = cells
        .map(|(cell, width)| format!("{cell:>width$}"))
        .collect();
    cells.join("  ").trim_end().to_owned()
}

const HEADING: [&str; 7] = [
    "thread",
    "captured",
    "packets/s",
    "bit/s",
    "dropped/s",
    "link/s",
    "link drops/s",
];
const WIDTHS: [usize; 7] = [6, 12, 10, 12, 10, 10, 12];

impl Rates {
    fn of(now: &ThreadCounts, before: &ThreadCounts) -> Self {
        let nanoseconds = now.at_ns.saturating_sub(before.at_ns);
        let since = |count: fn(&Counts) -> u64| {
            rate(
                count(&now.counts).saturating_sub(count(&before.counts)),
                nanoseconds,
            )
        };
        let dropped = |counts: &Counts| counts.kernel.map_or(0, |kernel| kernel.dropped);
        Self {
            captured: now.counts.captured,
            received_by_filter: now.counts.kernel.map(|kernel| kernel.received),
            dropped_by_kernel: now.counts.kernel.map(|kernel| kernel.dropped),
            captured_per_second: since(|counts| counts.captured),
            bits_per_second: since(|counts| counts.bytes * 8),
            dropped_per_second: now.counts.kernel.map(|_| since(dropped)),
        }
    }

    fn sum(threads: &[Self]) -> Self {
        let mut sum = Self::default();
        for rates in threads {
            sum.captured += rates.captured;
            sum.captured_per_second += rates.captured_per_second;
            sum.bits_per_second += rates.bits_per_second;
            add(&mut sum.received_by_filter, rates.received_by_filter);
            add(&mut sum.dropped_by_kernel, rates.dropped_by_kernel);
            add(&mut sum.dropped_per_second, rates.dropped_per_second);
        }
        sum
    }
}

/// Adds `more` to `sum`; `None` does not change the sum.
fn add<T: AddAssign + Default>(sum: &mut Option<T>, more: Option<T>) {
    if let Some(more) = more {
        *sum.get_or_insert_default() += more;
    }
}

/// Events per second.
fn rate(count: u64, nanoseconds: u64) -> f64 {
    if nanoseconds == 0 {
        return 0.0;
    }
    lossy(count) / seconds(nanoseconds)
}

pub(super) fn seconds(nanoseconds: u64) -> f64 {
    lossy(nanoseconds) / 1e9
}

/// `number` for printing; exact up to 2^53.
pub(super) fn lossy(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kernel;
    use serde_json::Value;

    fn told(at_ns: u64, captured: u64, dropped: u64) -> ThreadCounts {
        let kernel = Some(Kernel {
            received: captured + dropped,
            dropped,
            interface_dropped: 0,
        });
        let counts = Counts {
            captured,
            bytes: 125 * captured,
            kernel,
            ..Counts::default()
        };
        ThreadCounts::new(at_ns, counts)
    }

    fn interval() -> Interval {
        let before = [told(10, 0, 0), told(10, 1_000_000, 0)];
        let now = [
            told(1_000_000_010, 2_000_000, 50),
            told(500_000_010, 1_000_500, 0),
        ];
        let link = link::Counters {
            received: 3000,
            dropped: 6,
        };
        Interval::between(10, &before, &now, Some((link, 2_000_000_000)))
    }

    #[test]
    fn rates_are_by_each_threads_own_time() {
        let json: Value = serde_json::from_str(&interval().json().unwrap()).unwrap();
        assert_eq!(json["kind"], "interval");
        assert_eq!(json["seconds"], 1.0);
        assert_eq!(json["threads"][0]["captured_per_second"], 2e6);
        assert_eq!(json["threads"][0]["bits_per_second"], 2e9);
        assert_eq!(json["threads"][1]["captured_per_second"], 1000.0);
        assert_eq!(json["total"]["captured"], 3_000_500);
        assert_eq!(json["total"]["received_by_filter"], 3_000_550);
        assert_eq!(json["total"]["dropped_per_second"], 50.0);
        assert_eq!(json["link"]["received_per_second"], 1500.0);
    }

    #[test]
    fn the_table_is_aligned_and_short_on_a_terminal() {
        let lines = [
            vec![heading()],
            interval().rows(true),
            interval().rows(false),
        ]
        .concat();
        insta::assert_snapshot!(lines.join("\n"), @r"
        thread      captured   packets/s         bit/s   dropped/s      link/s  link drops/s
            #0         2.00M       2.00M         2.00G          50
            #1         1.00M       1.00k         1.00M           0
         total         3.00M       2.00M         2.00G          50       1.50k             3
            #0       2000000     2000000    2000000000          50
            #1       1000500        1000       1000000           0
         total       3000500     2001000    2001000000          50        1500             3
        ");
    }

    #[test]
    fn a_thread_that_has_not_answered_has_no_rates() {
        let same = [told(7, 5, 1)];
        let interval = Interval::between(0, &same, &same, None);
        assert_eq!(interval.total.captured_per_second, 0.0);
        assert_eq!(interval.total.captured, 5);
    }
}
