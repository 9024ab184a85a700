//! The interval of a bucket: the time since all counts of the bucket were last known exactly.
//!
//! In a sum over a longer time, doubled packets would hide lost packets. So doubled and lost
//! packets are computed for each interval, and the ledger adds up the intervals' numbers.

use super::span::Span;

/// A bucket's interval. Each run's own numbers in this interval are in its `CounterRun`.
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
    /// The highest number of packets that any single run captured.
    greatest: Span,
    /// Upper limit of the doubles among these packets. A packet that is in two nodes' reports
    /// counts as one double.
    may_double: i64,
    /// Upper limit of the other doubles: packets of which one copy is in no report.
    unreported: i64,
    /// Upper limit of the number of packets of runs that may have been out of turn; `None` if there
    /// are no such runs.
    out_of_turn: Option<i64>,
    /// Whether packets may be lost although the sums do not show it: a possible owner did not see
    /// all packets, or there was a fork.
    pub(super) is_partial: bool,
}

/// The packets of one run in an interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunPart {
    pub(super) captured: Span,
    /// Upper limit of this run's packets that nodes with lower numbers captured too. If the node
    /// counted as dead and reported again, all nodes count for that time.
    pub(super) may_double: i64,
    /// Upper limit of the run's other packets that a dead node captured too, after the dead node's
    /// last report. If the run has ended, packets that both captured after their last reports count
    /// too.
    pub(super) unreported: i64,
    /// Whether the node may have had the bucket.
    pub(super) had: bool,
    /// Whether the run has ended, so that only packets after its last report are uncertain.
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

    /// Notes that packets may be lost, although the nodes' later counts do not show this: a node
    /// did not see all packets, or nodes followed topologies of two coordinators.
    pub(super) fn lack(&mut self) {
        self.is_partial = true;
    }

    /// The packets that were doubled, and those that were lost, if `offered` packets were offered.
    ///
    /// If all nodes saw all packets, no packet is lost, because the owner of a bucket captures
    /// until the new owner captures too. In a fork this is not so: see `lack`.
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
        // A node out of turn assigns packets to wrong buckets, so it may capture more packets of a
        // bucket than were offered in this bucket.
        let (doubles, lost) = self.bounds(offered);
        let until = |span: Span| Span {
            least: 0,
            most: span.most.saturating_add(out_of_turn),
        };
        (until(doubles), until(lost))
    }

    /// The least and the greatest number of doubled packets and of lost packets, if all nodes
    /// assign a packet to the same bucket.
    fn bounds(&self, offered: Span) -> (Span, Span) {
        let captured = self.captured;
        // No run captures a packet twice, so the packets of the run that captured most are not
        // doubles of each other.
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
