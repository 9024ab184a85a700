//! The progress line.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use super::ledger::Account;

/// Interval between progress lines.
const PERIOD: Duration = Duration::from_secs(1);

/// The last accounts, from which rates are computed.
#[derive(Debug)]
pub(crate) struct Progress {
    at: Instant,
    before: Vec<Account>,
}

impl Progress {
    /// The state before the first line.
    pub(crate) fn new(copies: usize) -> Self {
        Self {
            at: Instant::now(),
            before: vec![Account::default(); copies],
        }
    }

    /// The next progress line; `None` if the last line is less than a second old.
    pub(crate) fn line(&mut self, accounts: &[Account], width: usize) -> Option<String> {
        let passed = self.at.elapsed();
        if passed < PERIOD {
            return None;
        }
        self.at = Instant::now();
        let before = std::mem::replace(&mut self.before, accounts.to_vec());
        Some(line(&before, accounts, passed, width))
    }
}

/// The line shows the sum, then the copies in order. If not all copies fit, the line shows those
/// with the most dropped packets, then those with the lowest rates.
fn line(before: &[Account], now: &[Account], passed: Duration, width: usize) -> String {
    let width = width.saturating_sub(1);
    let rate = |number: usize| rate(&before[number], &now[number], passed);
    let copies: Vec<String> = (0..now.len())
        .map(|number| one(&number.to_string(), &now[number], rate(number)))
        .collect();
    if copies.len() == 1 {
        return copies[0].chars().take(width).collect();
    }
    let known = now.iter().filter(|account| account.received.is_some());
    let sum = Account::sum(known.copied());
    let all = (0..now.len())
        .filter_map(rate)
        .reduce(|sum, rate| sum + rate);
    let mut text = one("all", &sum, all);
    let mut order: Vec<usize> = (0..now.len()).collect();
    order.sort_by_key(|&number| (Reverse(now[number].dropped.unwrap_or(0)), rate(number)));
    let mut shown = vec![false; now.len()];
    let mut left = width.saturating_sub(text.len());
    for number in order {
        let len = copies[number].len() + 2;
        if len > left {
            break;
        }
        left -= len;
        shown[number] = true;
    }
    for (copy, _) in copies.iter().zip(shown).filter(|(_, shown)| *shown) {
        text.push_str("  ");
        text.push_str(copy);
    }
    text.chars().take(width).collect()
}

/// Packets per second; `None` if unknown.
fn rate(before: &Account, now: &Account, passed: Duration) -> Option<u64> {
    let received = now.received?;
    let more = received.saturating_sub(before.received.unwrap_or(received));
    let milliseconds = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX).max(1);
    Some(more.saturating_mul(1000) / milliseconds)
}

fn one(name: &str, account: &Account, rate: Option<u64>) -> String {
    let (Some(received), Some(rate)) = (account.received, rate) else {
        return format!("{name}: ?");
    };
    let dropped = match account.dropped {
        Some(0) | None => String::new(),
        Some(dropped) => format!(" -{}", short(dropped)),
    };
    format!("{name}: {} {}/s{dropped}", short(received), short(rate))
}

/// A number in about five characters: 1234 is 1234, 1234567 is 1234k.
fn short(number: u64) -> String {
    let units = [
        (10_000_000_000, 1_000_000_000, "G"),
        (10_000_000, 1_000_000, "M"),
        (10_000, 1000, "k"),
    ];
    let unit = units.iter().find(|(from, ..)| number >= *from);
    unit.map_or_else(
        || number.to_string(),
        |(_, unit, name)| format!("{}{name}", number / unit),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rates_drops_and_what_is_unknown() {
        let account = |received, dropped| Account {
            received: Some(received),
            dropped: Some(dropped),
            ..Account::default()
        };
        let before = [account(1000, 0), Account::default(), account(5, 0)];
        let now = [
            account(51_000, 0),
            Account::default(),
            account(12_000_005, 70),
        ];
        let text = line(&before, &now, Duration::from_secs(2), 80);
        let all = "all: 12M 6025k/s -70";
        assert_eq!(
            text,
            format!("{all}  0: 51k 25k/s  1: ?  2: 12M 6000k/s -70")
        );
        let line = |width| super::line(&before, &now, Duration::from_secs(2), width);
        assert_eq!(line(50), format!("{all}  1: ?  2: 12M 6000k/s -70"));
        assert_eq!(line(10), "all: 12M ");
    }
}
