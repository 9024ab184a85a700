//! The line that shows how the copies get on.

use std::time::{Duration, Instant};

use super::ledger::Account;

/// How often it is shown anew.
const PERIOD: Duration = Duration::from_secs(1);

/// What was shown last, from which rates come.
#[derive(Debug)]
pub(crate) struct Progress {
    at: Instant,
    before: Vec<Account>,
}

impl Progress {
    /// Nothing was shown yet.
    pub(crate) fn new(copies: usize) -> Self {
        Self {
            at: Instant::now(),
            before: vec![Account::default(); copies],
        }
    }

    /// The line, if it is time for a new one.
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

fn line(before: &[Account], now: &[Account], passed: Duration, width: usize) -> String {
    let copies = now
        .iter()
        .zip(before)
        .enumerate()
        .map(|(number, (now, before))| {
            let Some(received) = now.received else {
                return format!("{number}: ?");
            };
            let more = received.saturating_sub(before.received.unwrap_or(received));
            let milliseconds = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX).max(1);
            let rate = more.saturating_mul(1000) / milliseconds;
            let dropped = match now.dropped {
                Some(0) | None => String::new(),
                Some(dropped) => format!(" -{}", short(dropped)),
            };
            format!("{number}: {} {}/s{dropped}", short(received), short(rate))
        });
    let text = copies.collect::<Vec<_>>().join("  ");
    text.chars().take(width.saturating_sub(1)).collect()
}

/// A number in at most five characters or so: 1234 is 1234, 1234567 is 1234k.
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
        assert_eq!(text, "0: 51k 25k/s  1: ?  2: 12M 6000k/s -70");
        assert_eq!(line(&before, &now, Duration::from_secs(2), 10), "0: 51k 25");
    }
}
