//! The account of each bucket, as CSV.

use std::fmt::Write as _;

use fanpcap_cluster::loss_account::Account;

/// The columns: the lower and upper bound of each figure.
const HEADER: &str = "bucket,offered_least,offered_most,captured_least,captured_most,\
                      doubles_least,doubles_most,lost_least,lost_most\n";

/// A row for each bucket, after a row with the columns' names.
pub(super) fn table(account: &Account) -> String {
    let mut table = HEADER.to_owned();
    for (bucket, row) in account.buckets.iter().enumerate() {
        table += &bucket.to_string();
        for span in [row.offered, row.captured, row.doubles, row.lost] {
            let _ = write!(table, ",{},{}", span.least, span.most);
        }
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    use fanpcap_cluster::loss_account::{BucketAccount, Span};

    use super::*;

    #[test]
    fn each_bucket_has_a_row_with_its_bounds() {
        let rest = BucketAccount {
            offered: Span::exactly(7),
            captured: Span { least: 5, most: 9 },
            doubles: Span { least: 0, most: 2 },
            lost: Span { least: 1, most: 3 },
            ..BucketAccount::default()
        };
        let account = Account {
            buckets: vec![BucketAccount::default(), rest],
            ..Account::default()
        };
        let (header, rows) = HEADER.split_at(HEADER.len() - 1);
        assert_eq!(header.split(',').count(), 9);
        let wanted = format!("{header}{rows}0,0,0,0,0,0,0,0,0\n1,7,7,5,9,0,2,1,3\n");
        assert_eq!(table(&account), wanted);
    }
}
