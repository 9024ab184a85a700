//! The interval of a bucket: the time since all counts of the bucket were last known exactly.
//!
//! Lost packets of one time must not cancel doubled packets of another time. So each interval has
//! its own numbers, and the ledger adds these numbers up.

use super::span::Span;

/// A bucket's interval, without the parts that are in the runs' own counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Interval {
    /// When the interval began, in nanoseconds since 1970.
    pub(super) since: u64,
    /// The packets offered before the interval.
    pub(super) offered: Span,
    /// The packets that ended runs captured in the interval.
    pub(super) gone: RunParts,
}

/// The packets of one or several runs in an interval.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunParts {
    captured: Span,
    /// The highest number of packets that one of the runs captured.
    greatest: Span,
    /// Upper limit of the captured packets that other nodes may have captured too. A packet with
    /// two copies in reports counts once.
    may_double: i64,
    /// Upper limit of the doubles besides these, of copies that no report has.
    unreported: i64,
    /// Upper limit of the packets captured by nodes that were out of turn; `None` if no node was.
    out_of_turn: Option<i64>,
    /// Whether a possible owner of the bucket may have missed packets.
    is_partial: bool,
}

/// The packets of one run in an interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunPart {
    pub(super) captured: Span,
    /// Upper limit of the captured packets that nodes with lower numbers or dead nodes may have
    /// captured too.
    pub(super) may_double: i64,
    /// Upper limit of the other packets that the run captured, and a dead node after its last
    /// report. For an ended run, with the packets that both captured after their last reports.
    pub(super) unreported: i64,
    /// Whether the node may have had the bucket.
    pub(super) had: bool,
    /// Whether the run has ended. Then all uncertain packets came after its last report.
    pub(super) is_ended: bool,
    /// Whether the node may have been out of turn. Then it assigned packets to wrong buckets.
    pub(super) is_out_of_turn: bool,
    /// Whether the node certainly saw all packets that the cluster was offered.
    pub(super) saw_all: bool,
}

impl RunParts {
    /// Adds the packets of a run.
    pub(super) fn add(&mut self, part: &RunPart) {
        let Span { least, most } = part.captured;
        self.captured += part.captured;
        self.greatest.least = self.greatest.least.max(least);
        self.greatest.most = self.greatest.most.max(most);
        self.may_double = self.may_double.saturating_add(part.may_double);
        self.unreported = self.unreported.saturating_add(part.unreported);
        if part.is_out_of_turn {
            let others = self.out_of_turn.unwrap_or(0);
            self.out_of_turn = Some(others.saturating_add(most.max(0)));
        }
        self.is_partial |= part.had && (part.is_ended || !part.saw_all);
    }

    /// Whether a possible owner of the bucket may have missed packets.
    pub(super) fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// Notes that a node did not see all packets, because its counts will not show this later.
    pub(super) fn lack(&mut self) {
        self.is_partial = true;
    }

    /// The packets that were doubled, and those that were lost, if `offered` packets were offered.
    ///
    /// If all nodes saw all packets, no packet is lost, because the owner of a bucket captures
    /// until the new owner captures too.
    pub(super) fn outcome(&self, offered: Span) -> (Span, Span) {
        let captured = self.captured;
        let is_known = captured.is_exact() && offered.is_exact() && !self.is_partial;
        let Some(out_of_turn) = self.out_of_turn else {
            return if is_known && captured.least >= offered.least {
                (captured - offered, Span::default())
            } else {
                self.bounds(offered)
            };
        };
        // A node out of turn puts packets into wrong buckets, perhaps more than were offered.
        let (doubles, lost) = self.bounds(offered);
        let until = |span: Span| Span {
            least: 0,
            most: span.most.saturating_add(out_of_turn),
        };
        (until(doubles), until(lost))
    }

    /// The bounds of the packets that were doubled, and of those that were lost, if all nodes
    /// assign the same packets to the same buckets.
    fn bounds(&self, offered: Span) -> (Span, Span) {
        let captured = self.captured;
        // One of the runs captured each packet once.
        let beyond = captured.since(self.greatest).not_negative();
        let doubles = self.may_double.saturating_add(self.unreported);
        let most = beyond.most.min(doubles);
        let least = captured.least.saturating_sub(offered.most).max(0);
        let doubles = Span {
            least,
            most: most.max(least),
        };
        let least = offered.least.saturating_sub(captured.most).max(0);
        let lacks = offered.most.saturating_sub(captured.least);
        let most = lacks.saturating_add(beyond.least.min(self.may_double));
        let most = most.min(offered.most);
        let lost = Span {
            least,
            most: most.max(least),
        };
        (doubles, lost)
    }
}
