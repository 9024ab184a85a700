//! Parses the output of our own programs that test a binding: the Test Anything Protocol.

use anyhow::{Context, Result, ensure};

use crate::outcome::Outcome;

/// Parses a line for each test, and the plan at the end.
pub(crate) fn parse(said: &str) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for line in said.lines() {
        if let Some(rest) = line.strip_prefix("not ok ") {
            outcome.fail(description(rest));
        } else if line.starts_with("ok ") {
            outcome.passed += 1;
        }
    }
    let plan = said.lines().find_map(|line| line.strip_prefix("1.."));
    let planned: usize = plan.context("the program ended early")?.trim().parse()?;
    let seen = outcome.executed();
    ensure!(seen == planned, "{seen} tests seen, {planned} planned");
    Ok(outcome)
}

fn description(rest: &str) -> &str {
    rest.split_once(" - ").map_or(rest, |(_, text)| text).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_tells_whether_all_ran() {
        let said = "# send: no\nnot ok 1 - send\nok 2 - sniff\n1..2\n";
        let outcome = parse(said).unwrap();
        assert_eq!(outcome.to_string(), "1 passed, 1 failed, 0 skipped");
        assert!(outcome.failing.contains("send"));
        assert!(parse("ok 1 - sniff\n").is_err());
        assert!(parse("ok 1 - sniff\n1..2\n").is_err());
    }
}
