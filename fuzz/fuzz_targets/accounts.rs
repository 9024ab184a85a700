//! Reads any bytes as the numbers in nodes' reports. A ledger accepts or refuses each report, and
//! its sums must not overflow.
#![no_main]

use fanpcap_buckets::layout::BUCKETS;
use fanpcap_cluster::loss_account::{Beacon, Ledger, LedgerSettings, Report, Summary};
use fanpcap_cluster::{NodeId, Revision};
use libfuzzer_sys::fuzz_target;

/// How many bytes of the input each report has: one for the action after the report, one for the
/// node, one for the boot, and seven numbers.
const STEP: usize = 3 + 8 * 7;

fn report(node: u8, boot: u8, numbers: [u64; 7]) -> Report {
    let [since, stamp, ring, sequence, beacon, seen, captured] = numbers;
    let counts =
        |count: u64| Box::new(std::array::from_fn(|b| if b % 64 == 0 { count } else { 0 }));
    Report {
        summary: Summary {
            node: NodeId(u32::from(node % 4)),
            boot: u64::from(boot % 2),
            since,
            stamp,
            revision: Revision(1),
            ring,
            beacon: Beacon {
                sequence,
                seen: beacon,
            },
        },
        seen: counts(seen),
        captured: counts(captured),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut ledger = Ledger::new(LedgerSettings {
        skew: 1000,
        begin: 1,
        analyzed: bytes.len() % 2 == 0,
    });
    for step in bytes.chunks_exact(STEP) {
        let number = |at: usize| {
            let word = step[3 + 8 * at..][..8].try_into().expect("eight bytes");
            u64::from_le_bytes(word)
        };
        let numbers: [u64; 7] = std::array::from_fn(number);
        let _ = ledger.take(report(step[1], step[2], numbers));
        match step[0] % 6 {
            0 => ledger.end(NodeId(u32::from(step[1] % 4)), numbers[1], None),
            1 => ledger.set_doubles(0, numbers[5]),
            2 => ledger.set_refused(0, numbers[6]),
            _ => ledger.settle(),
        }
    }
    ledger.settle();
    assert_eq!(ledger.account().buckets.len(), BUCKETS);
});
