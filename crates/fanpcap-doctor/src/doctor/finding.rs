//! A finding: what is wrong, where, why it matters, and the command that fixes it.

use fanpcap_config::report::harmless_text;
use serde::{Deserialize, Serialize};

/// The effect of a problem on captures, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Effect {
    /// Applications get an error and capture nothing.
    Refuses,
    /// Packets are lost.
    Loses,
    /// Flows are split, or packets come twice, out of order or changed.
    Distorts,
    /// Captures take more CPU time than they need, or reach a lower rate.
    Costs,
}

impl Effect {
    pub(super) const ALL: [Self; 4] = [Self::Refuses, Self::Loses, Self::Distorts, Self::Costs];

    /// The word for the effect in the text.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Refuses => "refuses",
            Self::Loses => "loses",
            Self::Distorts => "distorts",
            Self::Costs => "costs",
        }
    }

    /// Whether packets are missing in captures.
    pub(super) fn loses_packets(self) -> bool {
        matches!(self, Self::Refuses | Self::Loses)
    }
}

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Finding<Name = &'static str> {
    /// The finding's name, for scripts and the manual.
    pub(super) name: Name,
    /// The effect of the problem.
    pub(super) effect: Effect,
    /// Where the problem is: a device, a group on a device, a line of a file, or `this machine`.
    pub(super) place: String,
    /// What is wrong.
    pub(super) what: String,
    /// Why the problem matters.
    pub(super) why: String,
    /// The shell command that fixes the problem.
    pub(super) fix: String,
}

impl Finding {
    /// A finding at `place`. `told` says what is wrong, why it matters and how to fix it.
    pub(super) fn new(name: &'static str, effect: Effect, place: &str, told: [String; 3]) -> Self {
        let [what, why, fix] = told;
        let place = place.to_owned();
        Self {
            name,
            effect,
            place,
            what,
            why,
            fix,
        }
    }
}

/// A finding that another process printed.
pub(super) type PrintedFinding = Finding<String>;

/// The output of another process.
#[derive(Deserialize)]
pub(super) struct PrintedFindings {
    pub(super) findings: Vec<PrintedFinding>,
}

impl PrintedFinding {
    /// The finding without characters that act on a terminal; `None` if its name is not in `names`.
    pub(super) fn own(self, names: &[&'static str]) -> Option<Finding> {
        let name = names.iter().find(|&&it| it == self.name)?;
        Some(Finding {
            name,
            effect: self.effect,
            place: harmless_text(&self.place),
            what: harmless_text(&self.what),
            why: harmless_text(&self.why),
            fix: harmless_text(&self.fix),
        })
    }
}

/// The place of findings that concern no device.
pub(super) const MACHINE: &str = "this machine";

/// Sorts findings by effect, keeps the order of findings with equal effect, and removes
/// repetitions.
pub(super) fn in_order(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_by_key(|finding| finding.effect);
    findings.dedup();
    findings
}

/// Text as a shell word: quoted if needed.
pub(super) fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=+,@%".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &'static str, effect: Effect) -> Finding {
        Finding {
            name,
            effect,
            place: String::new(),
            what: String::new(),
            why: String::new(),
            fix: String::new(),
        }
    }

    #[test]
    fn the_worst_comes_first_and_once() {
        let (costs, loses) = (of("a", Effect::Costs), of("b", Effect::Loses));
        let all = in_order(vec![costs.clone(), loses.clone(), loses.clone()]);
        assert_eq!(all, [loses, costs]);
        assert!(Effect::ALL.is_sorted());
    }

    #[test]
    fn a_hostile_name_is_one_word_of_the_shell() {
        assert_eq!(word("eth0.100"), "eth0.100");
        assert_eq!(word("a;reboot"), "'a;reboot'");
        assert_eq!(word("it's$(x)"), r"'it'\''s$(x)'");
        assert_eq!(word(""), "''");
    }
}
