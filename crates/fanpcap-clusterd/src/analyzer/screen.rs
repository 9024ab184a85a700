//! The state on a terminal: the cluster's sums, four counters of losses, and a row for each node.

use std::io::{self, IsTerminal, Write};

use anyhow::{Context, Result, ensure};
use fanpcap_cluster::loss_account::{NodeAccount, Verdict};

use super::clock::rfc3339;
use super::status::Status;

/// Control sequences that enter the alternate screen and hide the cursor, and that undo both.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// Control sequences that move to the upper left, and clear the rest of a line or of the screen.
const HOME: &str = "\x1b[H";
const REST_OF_LINE: &str = "\x1b[K\r\n";
const REST: &str = "\x1b[J";

/// The terminal's alternate screen, which is left when this value is dropped.
#[derive(Debug)]
pub(super) struct TerminalScreen(());

impl TerminalScreen {
    /// Enters the alternate screen. Fails if standard output is not a terminal.
    pub(super) fn open() -> Result<Self> {
        let mut out = io::stdout();
        ensure!(
            out.is_terminal(),
            "--watch: standard output is no terminal; use --json for programs"
        );
        write!(out, "{ENTER}").context("writing to the terminal")?;
        Ok(Self(()))
    }

    /// Draws the state over the previous one.
    pub(super) fn draw(&self, status: &Status) -> Result<()> {
        let mut text = HOME.to_owned();
        for line in lines(status) {
            text += &line;
            text += REST_OF_LINE;
        }
        text += REST;
        let mut out = io::stdout();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.context("writing to the terminal")
    }
}

impl Drop for TerminalScreen {
    fn drop(&mut self) {
        // If the terminal is gone, this fails, and nothing is left to restore.
        let _ = write!(io::stdout(), "{LEAVE}");
        let _ = io::stdout().flush();
    }
}

fn lines(status: &Status) -> Vec<String> {
    let account = &status.account;
    let (total, counters) = (&account.total, &status.counters);
    let mut lines = vec![
        format!(
            "fanpcap analyzer, accounts since {}",
            rfc3339(account.since)
        ),
        String::new(),
        format!(
            "offered {}   captured {}   lost {}",
            total.offered, total.captured, total.lost
        ),
        format!(
            "lost at: mirror {}   ring {}   export {}   analyzer {}",
            status.mirror(),
            account.ring,
            counters.export_lost,
            status.unwritten
        ),
        format!(
            "delivered {}   doubles {}   fenced {}   foreign {}   unknown {}   late {}",
            counters.delivered,
            counters.doubles,
            counters.fenced,
            counters.foreign,
            counters.unknown,
            counters.late
        ),
        String::new(),
        format!(
            "{:8} {:>15} {:>15} {:>10} {:>10} {:>10} {:>10}",
            "NODE", "SEEN", "CAPTURED", "LOST", "MIRROR", "RING", "EXPORT"
        ),
    ];
    lines.extend(account.nodes.iter().map(|node| row(status, node)));
    lines.push(String::new());
    lines.extend(status.warnings());
    lines.extend(status.history());
    lines
}

/// A node's row. The losses are packets that this node should have captured.
fn row(status: &Status, node: &NodeAccount) -> String {
    let export = status.missing.get(&node.node).copied().unwrap_or(0);
    let row = format!(
        "{:8} {:>15} {:>15} {:>10} {:>10} {:>10} {:>10}",
        node.node.to_string(),
        node.seen,
        node.captured,
        node.ring.saturating_add(export),
        node.mirror,
        node.ring,
        export
    );
    if node.verdict == Verdict::Sound {
        row
    } else {
        format!("{row}  {}", node.verdict)
    }
}

#[cfg(test)]
mod tests {
    use fanpcap_cluster::NodeId;
    use fanpcap_cluster::analyzer::Counters;
    use fanpcap_cluster::loss_account::{Account, PortHistory};

    use super::*;

    #[test]
    fn a_node_has_its_four_figures_and_warnings_have_lines() {
        let node = NodeAccount {
            node: NodeId(0xa1),
            verdict: Verdict::Blind,
            mirror: 5,
            ring: 3,
            seen: 100,
            captured: 40,
        };
        let status = Status {
            account: Account {
                nodes: vec![node],
                history: vec![PortHistory {
                    node: NodeId(0xa2),
                    worst: Verdict::Lossy(400),
                    since: 0,
                    last: 8_000_000_000,
                    packets: 31,
                }],
                ring: 3,
                ..Account::default()
            },
            clocks: vec![(Some(NodeId(0xa1)), -12_000_000_000)],
            ages: vec![(NodeId(0xa1), 3_000_000_000), (NodeId(0xa2), 7_900_000_000)],
            blind: None,
            missing: [(NodeId(0xa1), 2)].into(),
            counters: Counters {
                export_lost: 2,
                ..Counters::default()
            },
            written: 0,
            unwritten: 7,
            refused: 0,
            refusals: Vec::new(),
            extra_counters: Vec::new(),
            trouble: None,
        };
        let lines = lines(&status);
        let text = lines.join("\n");
        assert!(text.contains("lost at: mirror 5   ring 3   export 2   analyzer 7"));
        let row = lines.iter().find(|line| line.starts_with("000000a1"));
        let extra_counters: Vec<&str> = row.unwrap().split_whitespace().take(7).collect();
        assert_eq!(extra_counters[1..], ["100", "40", "5", "5", "3", "2"]);
        let clock = "node 000000a1: its clock is 12.0 s behind the others'";
        assert!(lines.iter().any(|line| line == clock), "{text}");
        let past = "history of node 000000a2: lossy at worst, from 1970-01-01T00:00:00Z until \
                    1970-01-01T00:00:08Z, 31 packets lost at its port";
        assert_eq!(lines.last().map(String::as_str), Some(past));
        assert!(status.line().contains(past), "{}", status.line());
        let json: serde_json::Value = serde_json::from_str(&status.json()).unwrap();
        let port = &json["history"][0];
        assert_eq!(
            (&port["worst"], port["last"].as_u64()),
            (&"lossy".into(), Some(8_000_000_000))
        );
        let lacks = |line: &&String| line.contains("no report");
        let lacking: Vec<&String> = lines.iter().filter(lacks).collect();
        assert_eq!(lacking, ["node 000000a2: no report for 7 s"]);
        let lacking = serde_json::json!([{ "node": "000000a2", "ago": 7_900_000_000_u64 }]);
        assert_eq!(json["lacking"], lacking);
    }
}
