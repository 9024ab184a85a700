//! Compares the ledger with what became of the model's packets.

use super::{Model, Node, Table, USED};
use crate::loss_account::{BucketAccount, Span};

impl Model {
    /// Checks that the ledger's spans contain the truth at the time of the account.
    pub(in crate::loss_account::tests) fn check(&self) -> Result<(), String> {
        let account = self.ledger.account();
        let until = |list: &[(u64, usize)], bucket: usize| {
            let there = list
                .iter()
                .filter(|item| item.0 <= account.time && item.1 == bucket);
            i64::try_from(there.count()).unwrap()
        };
        // What a hung node captures while it counts as dead is in no report. An analyzer that gets
        // packets knows only those that came.
        let is_cut = |node: &Node| self.analyzed || node.hung > self.now;
        let mut ended = self.nodes.iter().filter(|node| node.runs && node.is_ended);
        let is_silent = ended.any(is_cut);
        for (bucket, row) in account.buckets.iter().enumerate().take(USED) {
            let offered = until(&self.offered, bucket);
            let captured = until(&self.captures, bucket);
            if !row.offered.has(offered) || !(is_silent || row.captured.has(captured)) {
                return Err(format!(
                    "bucket {bucket}: {row:?}, offered {offered}, captured {captured}"
                ));
            }
        }
        let history = &account.history;
        let is_well = |node: &&Node| node.loss == 0 && node.blind == 0;
        let mut well = self.nodes.iter().filter(is_well);
        match well.find(|node| history.iter().any(|port| port.node == node.id)) {
            Some(node) => Err(format!("{:?} was well: {history:?}", node.id)),
            None => Ok(()),
        }
    }

    /// Checks that without traffic the ledger's spans contain the truth, for each bucket and for
    /// all together. Also checks that the spans are not too wide for the number of uncertain
    /// packets.
    pub(in crate::loss_account::tests) fn check_at_rest(&self) -> Result<(), String> {
        let account = self.ledger.account();
        let (mut all, mut total) = ((0, 0, 0), BucketAccount::default());
        for (bucket, row) in account.buckets.iter().enumerate().take(USED) {
            let doubtful = match self.is_plain(bucket) {
                true => 0,
                false => self.doubtful_of(bucket),
            };
            let truth = (doubtful, self.doubles_of(bucket), self.lost_of(bucket));
            hold(row, truth).map_err(|error| format!("bucket {bucket}: {error}"))?;
            all = (all.0 + truth.0, all.1 + truth.1, all.2 + truth.2);
            (total.doubles, total.lost) = (total.doubles + row.doubles, total.lost + row.lost);
        }
        assert_eq!(
            (account.total.doubles, account.total.lost),
            (total.doubles, total.lost)
        );
        hold(&account.total, all)
    }

    /// Checks the sums of all buckets without traffic, for packets captured in turn. The single
    /// buckets are not checked, because a node that is out of turn assigns packets to wrong
    /// buckets.
    pub(in crate::loss_account::tests) fn check_in_turn(&self) -> Result<(), String> {
        let all = |of: fn(&Self, usize) -> i64| (0..USED).map(|bucket| of(self, bucket)).sum();
        let is_faulty = self.nodes.iter().any(|node| node.is_faulty);
        let doubtful = if is_faulty { i64::MAX } else { 0 };
        let truth = (doubtful, all(Self::doubles_of), all(Self::lost_of));
        hold(&self.ledger.account().total, truth)
    }

    pub(super) fn doubles_of(&self, bucket: usize) -> i64 {
        let taken = self.taken.iter().zip(&self.offered);
        let of_bucket = taken.filter(|(_, offered)| offered.1 == bucket);
        of_bucket
            .map(|(&taken, _)| i64::from(taken.saturating_sub(1)))
            .sum()
    }

    fn lost_of(&self, bucket: usize) -> i64 {
        let taken = self.taken.iter().zip(&self.offered);
        let lost = taken.filter(|(taken, offered)| **taken == 0 && offered.1 == bucket);
        i64::try_from(lost.count()).unwrap()
    }

    pub(in crate::loss_account::tests) fn lost(&self) -> i64 {
        (0..USED).map(|bucket| self.lost_of(bucket)).sum()
    }

    pub(in crate::loss_account::tests) fn doubles(&self) -> i64 {
        (0..USED).map(|bucket| self.doubles_of(bucket)).sum()
    }

    /// Whether all nodes that ever had the bucket are without fault.
    fn is_plain(&self, bucket: usize) -> bool {
        let nodes = |table: &Table| [table.owners[bucket], table.new_owners[bucket]];
        let mut nodes = self.tables.iter().flat_map(nodes);
        !nodes.any(|node| self.nodes[node].is_faulty)
    }

    /// How many packets of a bucket came at a time at which the bucket's packets are doubtful.
    fn doubtful_of(&self, bucket: usize) -> i64 {
        let doubts = self.doubts.iter().filter(|(buckets, _)| buckets[bucket]);
        let is_in = |at: &u64| doubts.clone().any(|(_, times)| times.contains(at));
        let doubtful = self
            .offered
            .iter()
            .filter(|(at, of)| *of == bucket && is_in(at));
        i64::try_from(doubtful.count()).unwrap()
    }
}

/// Checks that the spans contain the doubled and the lost packets, and are not too wide for the
/// number of uncertain packets.
fn hold(row: &BucketAccount, truth: (i64, i64, i64)) -> Result<(), String> {
    let (doubtful, doubles, lost) = truth;
    let is_wide = |span: Span| span.most - span.least > doubtful;
    if !row.doubles.has(doubles) || !row.lost.has(lost) {
        return Err(format!("{row:?}, doubles {doubles}, lost {lost}"));
    }
    if is_wide(row.doubles) || is_wide(row.lost) {
        return Err(format!("{row:?}, wider than {doubtful}"));
    }
    Ok(())
}
