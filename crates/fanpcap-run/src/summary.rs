//! The summary of the copies and their packets, as text on standard error and as JSON.

use std::fmt::Write;
use std::fs::{self, OpenOptions};
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fanpcap_merge::Merged;
use fanpcap_snapshot::{NO_TIME, NOT_ALLOWED};
use fanpcap_terminal::table;
use serde::Serialize;

use super::copy::{Copy, End};
use super::ledger::{Absent, Account, AtPoller};

#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    /// The copies' group.
    pub(crate) group: u16,
    /// The group's mode.
    pub(crate) mode: String,
    /// Each copy, by its number.
    pub(crate) copies: Vec<OfCopy>,
    /// Sums over the copies; a sum is null if the number of one copy is unknown.
    pub(crate) total: Account,
    /// Times without any copy in the group.
    pub(crate) absent: Absent,
    /// Packets that the steering program dropped; null if the number is unknown, or if the group
    /// has no steering program.
    pub(crate) steered_nowhere: Option<u64>,
    /// Packets that only the copies' poller counts; null if the copies have no poller.
    pub(crate) poller: Option<AtPoller>,
    /// The merged file; null if no captures were merged.
    pub(crate) merge: Option<OfMerge>,
    /// Packets that the copies took but that none of their captures contains, if the packets in the
    /// captures were counted. Negative if the captures contain more.
    pub(crate) taken_not_written: Option<i64>,
}

/// One copy.
#[derive(Debug, Serialize)]
pub(crate) struct OfCopy {
    /// The copy's number.
    pub(crate) number: usize,
    /// The copy's CPU.
    pub(crate) cpu: Option<usize>,
    /// Number of starts.
    pub(crate) starts: u32,
    /// How the copy ended after each start.
    pub(crate) ends: Vec<OfEnd>,
    /// The copy ended too often and was given up.
    pub(crate) given_up: bool,
    /// The copy's packets.
    #[serde(flatten)]
    pub(crate) account: Account,
    /// Packets in the copy's captures; null if they were not counted.
    pub(crate) written: Option<u64>,
}

/// How a copy ended after one start.
#[derive(Debug, Serialize)]
pub(crate) struct OfEnd {
    /// The exit status of the process.
    pub(crate) status: Option<i32>,
    /// The signal that killed the process.
    pub(crate) signal: Option<i32>,
    /// This command had sent the copy a signal before the copy ended.
    pub(crate) told: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct OfMerge {
    /// The merged file.
    pub(crate) file: PathBuf,
    /// Packets in the merged file.
    pub(crate) packets: u64,
    /// How many packets of the merged file are out of order.
    pub(crate) late: u64,
    /// Captures that were merged.
    pub(crate) sources: usize,
    /// How many of the merged captures end within a packet.
    pub(crate) cut: usize,
}

/// Checks before the copies start that the JSON can be written, because this command writes the
/// JSON only after the copies have ended.
///
/// # Errors
/// The file can't be written. The message names the file.
pub(crate) fn ensure_writable(path: &Path) -> Result<()> {
    // A dangling link counts as present, so that the link is not removed below.
    let is_new = fs::symlink_metadata(path).is_err();
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    options
        .open(path)
        .with_context(|| format!("--json: writing {}", path.display()))?;
    if is_new {
        fs::remove_file(path).with_context(|| format!("removing {}", path.display()))?;
    }
    Ok(())
}

impl OfCopy {
    /// The result of a copy.
    pub(crate) fn new(copy: &Copy, account: Account, written: Option<u64>) -> Self {
        let end = |end: &End| OfEnd {
            status: end.status.code(),
            signal: end.status.signal(),
            told: end.told,
        };
        Self {
            number: copy.number,
            cpu: copy.cpu,
            starts: copy.starts,
            ends: copy.ends.iter().map(end).collect(),
            given_up: copy.given_up,
            account,
            written,
        }
    }
}

impl OfMerge {
    pub(crate) fn new(file: &Path, merged: &Merged) -> Self {
        Self {
            file: file.to_owned(),
            packets: merged.packets,
            late: merged.late,
            sources: merged.parts.len(),
            cut: merged.parts.iter().filter(|part| part.cut).count(),
        }
    }
}

impl Summary {
    /// Sums up the copies.
    pub(crate) fn new(
        group: u16,
        mode: String,
        (copies, absent, ceiling): (Vec<OfCopy>, Absent, Option<u64>),
        merge: Option<OfMerge>,
    ) -> Self {
        let total = Account::sum(copies.iter().map(|copy| copy.account)).below(ceiling);
        let difference = |written: u64| {
            let taken = total.taken?.checked_add(total.inherited?)?;
            Some(i64::try_from(taken).ok()? - i64::try_from(written).ok()?)
        };
        Self {
            group,
            mode,
            taken_not_written: written(&copies).and_then(difference),
            copies,
            total,
            absent,
            steered_nowhere: None,
            poller: None,
            merge,
        }
    }

    /// Text about packets that no copy's numbers contain.
    fn besides(&self) -> String {
        let mut text = String::new();
        if self.absent.times > 0 {
            let packets = self.absent.packets;
            let packets = packets.map_or("an unknown number of".to_owned(), |it| it.to_string());
            let _ = writeln!(
                text,
                "no copy was in the group {}: {packets} packets came to the device in this time, and no copy got them",
                self.absent.spans()
            );
        }
        if let Some(packets @ 1..) = self.steered_nowhere {
            let _ = writeln!(text, "{packets} packets dropped by the steering program");
        }
        if let Some(poller) = self.poller {
            let others = [
                (
                    poller.dropped,
                    "lost before the poller, because it was late",
                ),
                (poller.no_member, "for which the group had no member"),
                (poller.no_time, NO_TIME),
                (poller.not_allowed, NOT_ALLOWED),
            ];
            for (packets, what) in others.into_iter().filter(|(packets, _)| *packets > 0) {
                let _ = writeln!(text, "{packets} packets {what}");
            }
        }
        match self.total.uncounted_at_most {
            Some(0) => {}
            Some(at_most) => {
                let _ = writeln!(
                    text,
                    "at most {at_most} packets are in no figure: they came while a copy joined the group or set its filter, or came to a copy that ended while it joined, or to the last copy on the XDP engine, when that copy was killed"
                );
            }
            None => text.push_str(
                "an unknown number of packets came while copies joined the group, and are in no figure\n",
            ),
        }
        text
    }

    /// Writes the summary as JSON.
    ///
    /// # Errors
    /// The file can't be written.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(path, text).with_context(|| format!("--json: writing {}", path.display()))
    }

    fn table(&self) -> String {
        let of_copy = |copy: &OfCopy| {
            let mut row = row(
                copy.number.to_string(),
                copy.starts,
                &copy.account,
                copy.written,
            );
            row.push(ends(copy));
            row
        };
        let mut rows = vec![COLUMNS.map(str::to_owned).to_vec()];
        rows.extend(self.copies.iter().map(of_copy));
        let starts = self.copies.iter().map(|copy| copy.starts).sum();
        let written = written(&self.copies);
        rows.push(row("all".to_owned(), starts, &self.total, written));
        let is_empty =
            |column, figure: &str| OPTIONAL.contains(&column) && ["0", "-"].contains(&figure);
        let rows = table::without_empty(&rows, is_empty);
        let last = rows[0].len() - 1;
        let lines = table::lines(&rows, |column| column == 0 || column == last);
        lines.join("\n") + "\n"
    }

    /// The text of the summary.
    pub(crate) fn text(&self) -> String {
        let mut text = self.table() + &self.besides();
        if let Some(merge) = &self.merge {
            let (file, packets, sources) = (merge.file.display(), merge.packets, merge.sources);
            let _ = write!(text, "{file}: {packets} packets of {sources} captures");
            if merge.late > 0 {
                let _ = write!(text, ", {} out of order", merge.late);
            }
            match merge.cut {
                0 => {}
                1 => text += ", one capture cut short in its last packet",
                cut => _ = write!(text, ", {cut} captures cut short in their last packet"),
            }
            let _ = match self.taken_not_written {
                Some(0) => writeln!(text, ", all that the copies took"),
                // The command's next line is about these packets.
                Some(1..) => writeln!(text),
                Some(less) => writeln!(
                    text,
                    "; the file has {} packets more than the copies took",
                    -less
                ),
                None => writeln!(text, "; how many the copies took is unknown"),
            };
        }
        text
    }
}

/// The number of packets in all captures; `None` if they were not counted.
fn written(copies: &[OfCopy]) -> Option<u64> {
    copies.iter().map(|copy| copy.written).sum()
}

/// The table's columns.
const COLUMNS: [&str; 10] = [
    "copy",
    "starts",
    "received",
    "dropped",
    "taken",
    "written",
    "inherited",
    "unread",
    "refused",
    "ended",
];

/// Columns that are left out if all their cells are 0 or `-`, so that a narrow terminal shows the
/// other columns.
const OPTIONAL: Range<usize> = 5..9;

/// The cells of one line of the table, without the last column.
fn row(name: String, starts: u32, account: &Account, written: Option<u64>) -> Vec<String> {
    let text =
        |figure: Option<u64>| figure.map_or("unknown".to_owned(), |figure| figure.to_string());
    vec![
        name,
        starts.to_string(),
        text(account.received),
        text(account.dropped),
        text(account.taken),
        written.map_or("-".to_owned(), |written| written.to_string()),
        text(account.inherited),
        text(account.unread),
        text(account.refused),
    ]
}

fn ends(copy: &OfCopy) -> String {
    let one = |end: &OfEnd| match (end.status, end.signal) {
        (Some(status), _) => status.to_string(),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "?".to_owned(),
    };
    let mut text = copy.ends.iter().map(one).collect::<Vec<_>>().join(", ");
    if copy.given_up {
        text.push_str("; given up");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_testkit::Scratch;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_is_tried_before_leaves_things_as_they_were() {
        let scratch = Scratch::new().unwrap();
        let [link, target, new] = ["link", "target", "new"].map(|name| scratch.file(name));
        symlink(&target, &link).unwrap();
        ensure_writable(&link).unwrap();
        ensure_writable(&new).unwrap();
        assert!(link.is_symlink() && !new.exists());
    }

    #[test]
    fn unknown_is_said_and_never_zero() {
        let copy = |number, taken| OfCopy {
            number,
            cpu: Some(1),
            starts: 1,
            ends: vec![OfEnd {
                status: None,
                signal: Some(9),
                told: false,
            }],
            given_up: false,
            account: Account {
                received: Some(10),
                dropped: Some(0),
                taken,
                inherited: Some(0),
                unread: Some(0),
                refused: Some(0),
                uncounted_at_most: Some(3),
            },
            written: Some(8),
        };
        let merge = |packets| OfMerge {
            file: "all.pcap".into(),
            packets,
            late: 0,
            sources: 2,
            cut: 1,
        };
        let copies = vec![copy(0, Some(9)), copy(1, None)];
        let all = (copies, ABSENT, None);
        let summary = Summary::new(7, "hash".to_owned(), all, Some(merge(16)));
        assert_eq!(
            (summary.total.received, summary.total.taken),
            (Some(20), None)
        );
        let text = summary.text();
        assert!(
            text.contains("unknown") && text.contains("signal 9"),
            "{text}"
        );
        assert!(text.contains("one capture cut short"), "{text}");
        assert!(!text.contains("refused"), "{text}");
        assert!(text.lines().take(4).all(|line| line.len() < 80), "{text}");
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!(json["copies"][0]["taken"], 9);
        assert!(json["copies"][1]["taken"].is_null() && json["taken_not_written"].is_null());

        let copies = vec![copy(0, Some(9)), copy(1, Some(10))];
        let all = (copies, ABSENT, None);
        let summary = Summary::new(7, "hash".to_owned(), all, Some(merge(16)));
        assert_eq!(summary.taken_not_written, Some(3));
        // Another line says how many packets the merged file lacks, and why.
        assert!(
            summary
                .text()
                .ends_with(", one capture cut short in its last packet\n")
        );
    }

    const ABSENT: Absent = Absent {
        times: 2,
        seconds: 0.5,
        packets: Some(34),
    };

    #[test]
    fn what_no_copy_got_is_said_besides() {
        let of = |account, absent| {
            let copy = Copy::new(0, None, &[]);
            let copies = vec![OfCopy::new(&copy, account, None)];
            Summary::new(7, "hash".to_owned(), (copies, absent, None), None)
        };
        let uncounted = |uncounted_at_most| Account {
            uncounted_at_most,
            ..Account::ZERO
        };
        let mut summary = of(uncounted(Some(6)), ABSENT);
        summary.steered_nowhere = Some(7);
        summary.poller = Some(AtPoller {
            no_time: 8,
            not_allowed: 9,
            ..AtPoller::default()
        });
        let text = summary.text();
        for part in [
            "in the group 2 times, 0.50 s together: 34 packets",
            "at most 6 packets are in no figure",
            "7 packets dropped by the steering program",
            "8 packets for which the poller had no time",
            "9 packets left out by the filter of the poller's policy",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let once = Absent { times: 1, ..ABSENT };
        let text = of(Account::ZERO, once).besides();
        assert!(text.contains("in the group once, for 0.50 s: 34"), "{text}");
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!(json["absent"]["packets"], 34);
        assert_eq!(json["total"]["uncounted_at_most"], 6);
        let never = Absent { times: 0, ..ABSENT };
        assert_eq!(of(Account::ZERO, never).besides(), "");
        assert!(
            of(uncounted(None), never)
                .text()
                .contains("an unknown number")
        );
    }
}
