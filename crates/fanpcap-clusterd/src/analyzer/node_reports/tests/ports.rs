//! A port that loses packets for a while, according to the nodes' reports.

use fanpcap_cluster::loss_account::Verdict;

use super::*;

/// How many packets came to a port until `seconds`: 1000 a second, but at a lossy port only 500 a
/// second from 10 s to 18 s.
fn came(seconds: u64, is_lossy: bool) -> u64 {
    let lost = 500 * seconds.clamp(10, 18).saturating_sub(10);
    1000 * seconds - if is_lossy { lost } else { 0 }
}

/// The reports of three nodes. Node 1 has the lossy port, and captures all packets that it sees.
fn report(both: &mut Both, seconds: u64, age: i64) {
    for node in 1..4 {
        let seen = came(seconds, node == 1);
        let at = Report8 {
            seconds,
            age,
            seen,
            captured: if node == 1 { seen } else { 0 },
            ..Report8::default()
        };
        both.report(node, at);
    }
    both.settle(seconds);
}

/// The account's verdict on node 1, which has the lossy port.
fn verdict(both: &Both) -> Verdict {
    both.node_reports.account().nodes[0].verdict
}

#[test]
fn a_port_is_named_while_it_loses_and_for_five_minutes() {
    let mut both = Both::new(Part::WHOLE);
    let mut named = Vec::new();
    for seconds in 0..330 {
        report(&mut both, seconds, 0);
        if verdict(&both) != Verdict::Sound {
            named.push(seconds);
        }
    }
    let (first, last) = (named[0], named[named.len() - 1]);
    assert_eq!(named.len() as u64, last - first + 1, "{named:?}");
    assert!((10..=16).contains(&first), "{first} s");
    assert!((18 + 285..=18 + 303).contains(&last), "{last} s");
    let account = both.node_reports.account();
    let lost = 8 * 500 * 8;
    assert!(account.total.lost.has(lost), "{:?}", account.total);
    let [port] = &account.history[..] else {
        panic!("{:?}", account.history)
    };
    assert_eq!((port.node, port.worst.name()), (NodeId(1), "lossy"));
    assert!(port.packets <= lost && port.packets > 0, "{port:?}");
    // An analyzer that begins 2 s after the losses gets the same counters, but finds no lossy port.
    let mut both = Both::new(Part::WHOLE);
    let age = i64::try_from(3600 * SECOND).unwrap();
    for seconds in 20..40 {
        report(&mut both, seconds, age);
        assert_eq!(verdict(&both), Verdict::Sound);
    }
    assert_eq!(both.node_reports.account().history, []);
}
