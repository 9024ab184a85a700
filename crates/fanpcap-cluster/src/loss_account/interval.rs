//! The packets of a bucket since all of its counts were last known exactly: how many were lost and
//! doubled.
//!
//! Lost and doubled packets of different times must not cancel each other: each interval has its
//! own numbers, and the ledger adds them up.

use super::span::Span;

/// A bucket's interval, without what is in the runs' own counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Interval {
    /// When it began, in nanoseconds since 1970.
    pub(super) since: u64,
    /// The packets offered before it.
    pub(super) offered: Span,
    /// What ended runs captured in it.
    pub(super) gone: RunParts,
}

/// What one or several runs have of an interval.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunParts {
    /// Packets captured.
    captured: Span,
    /// The most that one of them captured.
    greatest: i64,
    /// Packets that unions shared, at most.
    shared: i64,
    /// Packets captured by a topology that may have been replaced by then, at most.
    stale: i64,
    /// Packets that a dead node captured after its last report, at most.
    unreported: i64,
    /// Packets captured by nodes that were out of turn, at most; `None` if none was.
    out_of_turn: Option<i64>,
    /// Whether a node that may have had the bucket may not have seen all packets.
    is_partial: bool,
}

/// What a run has of an interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunPart {
    /// Packets captured.
    pub(super) captured: Span,
    /// Packets that unions shared, at most.
    pub(super) shared: i64,
    /// Packets captured by a topology that may have been replaced by then, at most.
    pub(super) stale: i64,
    /// Whether the node may have had the bucket.
    pub(super) had: bool,
    /// Whether the run has ended. Then what is uncertain came after its last report.
    pub(super) is_ended: bool,
    /// Whether the node may have been out of turn. Then its buckets had other packets than the
    /// other nodes' buckets.
    pub(super) is_out_of_turn: bool,
    /// Whether the node certainly saw all packets that the cluster was offered.
    pub(super) saw_all: bool,
}

impl RunParts {
    /// Adds what a run has.
    pub(super) fn add(&mut self, part: &RunPart) {
        let Span { least, most } = part.captured;
        self.captured += part.captured;
        self.greatest = self.greatest.max(most);
        self.shared = self.shared.saturating_add(part.shared);
        self.stale = self.stale.saturating_add(part.stale);
        if part.is_ended {
            self.unreported = self.unreported.saturating_add(most.saturating_sub(least));
        }
        if part.is_out_of_turn {
            let others = self.out_of_turn.unwrap_or(0);
            self.out_of_turn = Some(others.saturating_add(most.max(0)));
        }
        self.is_partial |= part.had && (part.is_ended || !part.saw_all);
    }

    /// Whether a node that may have had the bucket may not have seen all packets.
    pub(super) fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// Notes that a node did not see all packets, though its counts do not show this any more.
    pub(super) fn lack(&mut self) {
        self.is_partial = true;
    }

    /// The packets that were doubled, and those that were lost, if `offered` packets were offered.
    ///
    /// A packet can be doubled while a union shares its bucket, by a node that captures by an older
    /// topology, or by a dead node after its last report. If all nodes saw all packets, none is
    /// lost, because a bucket's owner stays until its new owner captures.
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
        // A node that is out of turn assigns packets to wrong buckets: it may even see more packets
        // of a bucket than there were.
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
        let beyond = captured.most.saturating_sub(self.greatest).max(0);
        let reported = beyond.min(self.shared.saturating_add(self.stale));
        let most = beyond.min(reported.saturating_add(self.unreported));
        let least = captured.least.saturating_sub(offered.most).max(0);
        let doubles = Span {
            least,
            most: most.max(least),
        };
        let least = offered.least.saturating_sub(captured.most).max(0);
        let lacks = offered.most.saturating_sub(captured.least);
        let most = lacks.saturating_add(reported).min(offered.most);
        let lost = Span {
            least,
            most: most.max(least),
        };
        (doubles, lost)
    }
}
