//! Compares the analyzer's account with the truth.

use std::fmt;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// What became of the packets with the numbers `0..offered`, according to the captured numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Truth {
    pub(crate) offered: u64,
    /// Packets that were captured. A packet that was captured several times counts once.
    pub(crate) captured: u64,
    /// Captures of packets that had already been captured.
    pub(crate) doubles: u64,
    pub(crate) missed: u64,
}

impl Truth {
    /// Counts the packets with numbers below `offered`.
    pub(crate) fn of(offered: u64, captured: impl IntoIterator<Item = u64>) -> Result<Self> {
        let mut times = vec![0u8; usize::try_from(offered)?];
        let mut doubles = 0;
        for number in captured {
            let times = times.get_mut(usize::try_from(number)?);
            let times = times.with_context(|| format!("packet {number} was never sent"))?;
            doubles += u64::from(*times > 0);
            *times = 1;
        }
        let captured = times.iter().map(|it| u64::from(*it)).sum();
        Ok(Self {
            offered,
            captured,
            doubles,
            missed: offered - captured,
        })
    }
}

/// A line of JSON that the analyzer printed.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Line(Value);

impl Line {
    /// The last complete line in an analyzer's output.
    pub(crate) fn last(printed: &str) -> Option<Self> {
        let (whole, _) = printed.rsplit_once('\n')?;
        let line = whole.lines().last()?;
        serde_json::from_str(line).ok().map(Self)
    }

    /// All complete lines in an analyzer's output.
    pub(crate) fn all(printed: &str) -> Vec<Self> {
        let lines = printed.lines().map(serde_json::from_str);
        lines.map_while(Result::ok).map(Self).collect()
    }

    /// The value of a figure. Fails if the line has a span instead of an exact value.
    pub(crate) fn number(&self, name: &str) -> Result<i64> {
        let value = self.0[name].as_i64();
        value.with_context(|| format!("no number {name:?} in {self}"))
    }

    /// The least and the greatest value of the account's figure `name`.
    pub(crate) fn span(&self, name: &str) -> Result<(i64, i64)> {
        let end = |which: &str| self.0[name][which].as_i64();
        let span = end("least").zip(end("most"));
        span.with_context(|| format!("no span {name:?} in {self}"))
    }

    /// The verdict on a node.
    pub(crate) fn verdict(&self, node: &str) -> Option<&str> {
        let nodes = self.0["nodes"].as_array()?;
        nodes.iter().find(|it| it["node"] == node)?["verdict"].as_str()
    }

    /// The figure `name` of one live node.
    pub(crate) fn of_node(&self, node: &str, name: &str) -> Option<i64> {
        let nodes = self.0["nodes"].as_array()?;
        nodes.iter().find(|it| it["node"] == node)?[name].as_i64()
    }

    /// Whether the line says that a node's reports are missing.
    pub(crate) fn lacks(&self, node: &str) -> bool {
        let lacking = self.0["lacking"].as_array();
        lacking.is_some_and(|nodes| nodes.iter().any(|it| it["node"] == node))
    }

    /// The time up to which the account is known, in nanoseconds since 1970.
    pub(crate) fn time(&self) -> u64 {
        self.0["time"].as_u64().unwrap_or(0)
    }

    /// Whether a figure is exact.
    pub(crate) fn is_exact(&self, name: &str) -> bool {
        self.span(name).is_ok_and(|(least, most)| least == most)
    }

    /// Whether a figure is exact and equals `number`.
    pub(crate) fn is(&self, name: &str, number: u64) -> bool {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        self.span(name).ok() == Some((number, number))
    }

    /// Whether all counts are the same as in an earlier line. Times may differ.
    pub(crate) fn is_as(&self, earlier: &Self) -> bool {
        let timeless = |line: &Self| {
            let mut value = line.0.clone();
            value["time"] = Value::Null;
            value["apart"] = Value::Null;
            // Ignores the history, because the entry of a blind port contains a time that changes
            // from line to line.
            value["history"] = Value::Null;
            value
        };
        timeless(self) == timeless(earlier)
    }

    /// Asserts that a figure's span contains this number.
    pub(crate) fn assert_within(&self, name: &str, number: u64) -> Result<()> {
        let (least, most) = self.span(name)?;
        let number = i64::try_from(number)?;
        ensure!(
            (least..=most).contains(&number),
            "{name} is {number}, and the analyzer says {least}..{most}: {self}"
        );
        Ok(())
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[test]
fn truth_tells_missed_packets_and_doubles() {
    let truth = Truth::of(5, [0, 1, 1, 3]).unwrap();
    assert_eq!((truth.captured, truth.doubles, truth.missed), (3, 1, 2));
    assert!(Truth::of(5, [5]).is_err());
}
