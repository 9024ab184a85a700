//! Reports with any numbers, as any process may send them.

use fanpcap_buckets::layout::BUCKETS;
use proptest::prelude::*;

use crate::identity::{NodeId, Revision};
use crate::loss_account::{Beacon, Ledger, LedgerSettings, Report, ReportError, Summary};

/// A number near a limit, or any number.
fn number() -> impl Strategy<Value = u64> {
    let known = prop::sample::select(vec![
        0,
        1,
        1000,
        (1 << 50) - 1,
        1 << 50,
        (1 << 50) + 1,
        i64::MAX as u64,
        u64::MAX - 1,
        u64::MAX,
    ]);
    prop_oneof![known, 0..1000_u64, any::<u64>()]
}

prop_compose! {
    fn report()(
        node in 0..3_u32,
        boot in 0..2_u64,
        numbers in prop::array::uniform5(number()),
        times in prop::array::uniform2(prop_oneof![number(), 0..20_u64]),
    ) -> Report {
        let [ring, sequence, beacon, seen, captured] = numbers;
        let [since, stamp] = times.map(|time| time.saturating_mul(1_000_000_000));
        let counts = |count: u64| Box::new(std::array::from_fn(|b| if b < 8 { count } else { 0 }));
        let summary = Summary {
            node: NodeId(node),
            boot,
            since,
            stamp,
            revision: Revision(1),
            ring,
            beacon: Beacon { sequence, seen: beacon },
        };
        Report { summary, seen: counts(seen), captured: counts(captured.min(seen)) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(200)
    })]

    #[test]
    fn no_reports_make_a_ledger_panic(
        reports in prop::collection::vec((report(), 0..6_u8, number()), 1..60),
        begin in prop_oneof![Just(0), number()],
        analyzed in any::<bool>(),
    ) {
        let mut ledger = Ledger::new(LedgerSettings { skew: 200_000_000, begin, analyzed });
        for (report, what, number) in reports {
            let node = report.summary.node;
            let _ = ledger.take(report);
            match what {
                0 => ledger.end(node, number, None),
                1 => ledger.set_doubles(1, number),
                2 => ledger.set_refused(2, number),
                3 => drop(ledger.account()),
                _ => ledger.settle(),
            }
        }
        ledger.settle();
        prop_assert_eq!(ledger.account().buckets.len(), BUCKETS);
    }
}

/// Reports with the highest possible counts do not overflow the sums, even if many runs are added.
#[test]
fn runs_of_the_greatest_counts_are_added_up() {
    let mut ledger = Ledger::new(LedgerSettings {
        skew: 1,
        begin: 0,
        analyzed: true,
    });
    let most = (1 << 50) - 1;
    for run in 1..600_u64 {
        for (at, seen) in [(0, 0), (3, most), (6, most)] {
            let stamp = run * 10 + at;
            let summary = Summary {
                node: NodeId(1),
                boot: run,
                since: run * 10,
                stamp,
                revision: Revision(1),
                ring: seen,
                beacon: Beacon::default(),
            };
            let counts = Box::new([seen; BUCKETS]);
            let report = Report {
                summary,
                seen: counts.clone(),
                captured: counts,
            };
            assert_eq!(ledger.take(report), Ok::<(), ReportError>(()));
            ledger.settle();
        }
    }
    let total = ledger.account().total;
    assert!(total.captured.least > i64::MAX / 2, "{total:?}");
}
