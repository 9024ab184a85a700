//! Accounts of an analyzer that starts late, of one of several analyzers, and of an analyzer whose
//! nodes have wrong clocks.

use std::net::SocketAddr;

use fanpcap_cluster::Revision;
use fanpcap_cluster::analyzer::AnalyzerSettings;
use fanpcap_cluster::loss_account::{Beacon, Summary};
use fanpcap_cluster::record::{
    Batch, BatchBuilder, CountsDecoder, CountsEncoder, Head, Kind, Record,
};

use super::*;

mod beacons;
mod ports;
mod reports;

const SECOND: u64 = 1_000_000_000;
const BEGIN: u64 = 1_000_000 * SECOND;
const SKEW: u64 = SECOND / 4;

fn head(node: u32, kind: Kind) -> Head {
    Head {
        kind,
        length: 0,
        cluster: 1,
        node: NodeId(node),
        boot: 1,
        session: 1,
    }
}

/// An analyzer, and its account of the nodes' reports.
struct Both {
    node_reports: NodeReports,
    analyzer: Analyzer,
    batches: BTreeMap<u32, BatchBuilder>,
}

impl Both {
    fn new(part: Part) -> Self {
        let settings = LedgerSettings {
            skew: SKEW,
            begin: BEGIN,
            analyzed: true,
        };
        Self {
            node_reports: NodeReports::new(settings, 15 * SECOND, part),
            analyzer: Analyzer::new(AnalyzerSettings {
                cluster: 1,
                hold: SECOND,
                skew: SKEW,
                most_held: 1 << 20,
                seed: 1,
                begin: BEGIN,
            }),
            batches: BTreeMap::new(),
        }
    }

    /// A node reports, `seconds` after the beginning. The node's clock is ahead by `ahead`, and its
    /// counters are `age` nanoseconds old. The node saw `seen` and captured `captured` packets of
    /// each of eight buckets.
    fn report(&mut self, node: u32, at: Report8) {
        let message = self.message(node, at);
        self.take(&message, at.seconds);
    }

    fn take(&mut self, message: &[u8], seconds: u64) {
        let (part, report) = CountsDecoder::default().decode(message).unwrap();
        let now = BEGIN + seconds * SECOND;
        self.node_reports.take(part, report, &self.analyzer, now);
    }

    fn message(&self, node: u32, at: Report8) -> Vec<u8> {
        let now = BEGIN + at.seconds * SECOND;
        let clock = |time: u64| time.saturating_add_signed(at.ahead);
        let counts = |count: u64| Box::new(std::array::from_fn(|b| if b < 8 { count } else { 0 }));
        let report = Report {
            summary: Summary {
                node: NodeId(node),
                boot: 1,
                since: BEGIN.saturating_add_signed(-at.age),
                stamp: clock(now),
                revision: Revision(1),
                ring: 0,
                beacon: at
                    .beacon
                    .map_or(Beacon::default(), |(sequence, ago)| Beacon {
                        sequence,
                        seen: clock(now - ago),
                    }),
            },
            seen: counts(at.seen),
            captured: counts(at.captured),
        };
        let mut encoder = CountsEncoder::new(head(node, Kind::Counts), self.node_reports.part);
        encoder.encode(&report)
    }

    /// For each of the eight buckets, `count` records of a node come.
    fn records(&mut self, node: u32, seconds: u64, count: u64) {
        self.records_of(node, (seconds, 0), count);
    }

    /// Like [`Both::records`], with records that were captured `ago` seconds ago.
    fn records_of(&mut self, node: u32, (seconds, ago): (u64, u64), count: u64) {
        let now = BEGIN + seconds * SECOND;
        let new = || BatchBuilder::new(head(node, Kind::Records), 1 << 15, 1);
        let builder = self.batches.entry(node).or_insert_with(new);
        let mut come = Vec::new();
        for number in 0..count * 8 {
            let record = Record {
                stamp: now - ago * SECOND + number,
                wire_length: 60,
                bucket: u16::try_from(number % 8).unwrap(),
                marked: false,
                captured: &number.to_be_bytes(),
            };
            come.extend(builder.push(Revision(1), &record));
        }
        come.extend(builder.flush());
        for bytes in come {
            let batch = Batch::decode(&bytes).unwrap();
            self.analyzer.take(&batch, now).unwrap();
        }
    }

    fn follow(&mut self, part: Part, now: u64) -> bool {
        self.node_reports.follow(part, &self.analyzer, now)
    }

    /// The node's agent is restarted. The batch that the earlier agent had begun is lost.
    fn restart(&mut self, node: u32, session: u64) {
        let head = Head {
            session,
            ..head(node, Kind::Records)
        };
        let builder = BatchBuilder::new(head, 1 << 15, 1);
        self.batches.insert(node, builder);
    }

    /// The node has nothing to send, and sends two batches without records in this second.
    fn idle(&mut self, node: u32, seconds: u64) {
        let new = || BatchBuilder::new(head(node, Kind::Records), 1 << 15, 1);
        let builder = self.batches.entry(node).or_insert_with(new);
        for tenths in [3, 6] {
            let now = BEGIN + seconds * SECOND + tenths * SECOND / 10;
            let bytes = builder.idle(Revision(1), now).unwrap();
            let batch = Batch::decode(&bytes).unwrap();
            self.analyzer.take(&batch, now).unwrap();
        }
    }

    /// How many packets of `node`, and of all nodes, are known to be lost between node and
    /// analyzer.
    fn export(&self, node: u32) -> (u64, u64) {
        let (missing, total) = self.node_reports.missing(&self.analyzer);
        (missing.get(&NodeId(node)).copied().unwrap_or(0), total)
    }

    fn settle(&mut self, seconds: u64) {
        self.node_reports
            .settle(&self.analyzer, BEGIN + seconds * SECOND);
    }
}

/// The contents of a report about eight buckets.
#[derive(Clone, Copy, Default)]
struct Report8 {
    seconds: u64,
    ahead: i64,
    age: i64,
    seen: u64,
    captured: u64,
    /// The number of the last beacon, and how many nanoseconds ago this beacon came.
    beacon: Option<(u64, u64)>,
}

fn exact(span: Span) -> i64 {
    assert!(span.is_exact(), "{span}");
    span.least
}

#[test]
fn an_analyzer_that_comes_late_loses_nothing_of_before_when_a_node_dies() {
    let mut both = Both::new(Part::WHOLE);
    let age = i64::try_from(3600 * SECOND).unwrap();
    for seconds in 0..60u64 {
        // Before the analyzer began, both nodes had seen a thousand packets of each bucket. Node 1
        // captures all packets. After ten seconds node 1 dies. For each bucket, the analyzer then
        // has records of five packets that node 1 captured after its last report.
        let come = seconds.min(9) * 10;
        let at = Report8 {
            seconds,
            age,
            seen: 1000 + come,
            ..Report8::default()
        };
        if seconds < 10 {
            let captured = 700 + come;
            both.report(1, Report8 { captured, ..at });
            both.records(1, seconds, if seconds < 9 { 10 } else { 5 });
        }
        let seen = at.seen + if seconds >= 10 { 5 } else { 0 };
        both.report(2, Report8 { seen, ..at });
        both.settle(seconds);
    }
    let account = both.node_reports.account();
    assert_eq!(account.since, BEGIN);
    assert_eq!(account.nodes.len(), 1);
    // The analyzer started amid traffic, so it may have missed the packets of one or two reports.
    let total = account.total;
    let holds = |span: Span, truth: i64| span.least <= truth && truth <= span.most;
    assert!(holds(total.offered, 8 * 95), "{total:?}");
    assert!(holds(total.captured, 8 * 95), "{total:?}");
    assert!(
        holds(total.lost, 0) && total.lost.most <= 8 * 40,
        "{total:?}"
    );
}

#[test]
fn what_a_node_had_kept_for_an_analyzer_is_no_capture_of_its_time() {
    let mut both = Both::new(Part::WHOLE);
    let age = i64::try_from(3600 * SECOND).unwrap();
    for seconds in 0..60u64 {
        // Before the analyzer began, node 1 had captured fifty packets of each bucket. The records
        // of these packets come within five seconds. Then node 1 captures ten more packets of each
        // bucket, and dies.
        let come = if seconds < 7 { 0 } else { 10 };
        let at = Report8 {
            seconds,
            age,
            seen: 1000 + come,
            ..Report8::default()
        };
        if seconds < 10 {
            let captured = 700 + come;
            both.report(1, Report8 { captured, ..at });
            match seconds {
                0..5 => both.records_of(1, (seconds, 10), 10),
                7 => both.records(1, seconds, 10),
                _ => {}
            }
        }
        both.report(2, at);
        both.settle(seconds);
    }
    let total = both.node_reports.account().total;
    let Span { least, most } = total.captured;
    assert!(least <= 8 * 10 && 8 * 10 <= most, "{total:?}");
}

#[test]
fn an_analyzer_that_comes_amid_packets_knows_nearly_what_was_captured_before_it() {
    let mut both = Both::new(Part::WHOLE);
    let age = i64::try_from(3600 * SECOND).unwrap();
    for seconds in 0..20u64 {
        // Node 1 reports first and captures nothing. Node 2 captures all packets.
        let come = seconds.min(9) * 10;
        for node in [1, 2] {
            let at = Report8 {
                seconds,
                age,
                seen: 1000 + come,
                captured: u64::from(node - 1) * (700 + come),
                ..Report8::default()
            };
            both.report(node, at);
        }
        both.settle(seconds);
    }
    let total = both.node_reports.account().total;
    assert_eq!(exact(total.offered), 8 * 90);
    let Span { least, most } = total.captured;
    assert!(least <= 8 * 90 && 8 * 90 <= most, "{total:?}");
    // Only the packets of two seconds are uncertain, because nodes report once a second.
    assert!(most - least <= 8 * 20, "{total:?}");
}

#[test]
fn an_analyzer_that_comes_at_rest_is_exact_about_a_node_that_dies() {
    let mut both = Both::new(Part::WHOLE);
    let age = i64::try_from(3600 * SECOND).unwrap();
    for seconds in 0..60u64 {
        // For two seconds, there is no traffic. Then node 1 captures all packets, and dies. One
        // packet of each bucket never reaches the analyzer.
        let come = seconds.saturating_sub(2).min(7) * 10;
        let at = Report8 {
            seconds,
            age,
            seen: 1000 + come,
            captured: 0,
            ..Report8::default()
        };
        if seconds < 10 {
            let captured = 700 + come;
            both.report(1, Report8 { captured, ..at });
            both.records(1, seconds, if (3..9).contains(&seconds) { 10 } else { 0 });
            if seconds == 9 {
                both.records(1, seconds, 9);
            }
        }
        both.report(2, at);
        both.settle(seconds);
    }
    let total = both.node_reports.account().total;
    let counted = (
        exact(total.offered),
        exact(total.captured),
        exact(total.lost),
    );
    assert_eq!(counted, (8 * 70, 8 * 69, 8));
}

#[test]
fn two_analyzers_have_their_own_buckets_and_together_all() {
    let addresses: [SocketAddr; 2] = ["10.0.0.1:1", "10.0.0.2:1"].map(|text| text.parse().unwrap());
    let stranger = "10.0.0.3:1".parse().unwrap();
    assert_eq!(Part::of(stranger, &addresses), None);
    assert_eq!(Part::of(stranger, &addresses[..1]), Some(Part::WHOLE));
    let mut sums = (0, 0, 0);
    for address in addresses {
        let mut both = Both::new(Part::of(address, &addresses).unwrap());
        for seconds in 0..6u64 {
            for node in 0..2 {
                let at = Report8 {
                    seconds,
                    seen: 50 * seconds.min(2),
                    captured: (25 - u64::from(node)) * seconds.min(2),
                    ..Report8::default()
                };
                both.report(node, at);
            }
            both.settle(seconds);
        }
        let total = both.node_reports.account().total;
        let lost = exact(total.lost);
        assert_eq!(
            (exact(total.offered), exact(total.captured), lost),
            (400, 392, 8)
        );
        sums = (sums.0 + 400, sums.1 + 392, sums.2 + lost);
        // After an analyzer is added, the accounts of the other analyzers begin again, for their
        // new parts of the buckets.
        let more = [addresses[0], addresses[1], stranger];
        let now = BEGIN + 6 * SECOND;
        assert!(both.follow(Part::of(address, &more).unwrap(), now));
        assert!(!both.follow(Part::of(address, &more).unwrap(), now));
        for seconds in 7..12u64 {
            let seen = 100 + 3 * (seconds.min(9) - 7);
            let at = Report8 {
                seconds,
                seen,
                ..Report8::default()
            };
            both.report(0, at);
            both.settle(seconds);
        }
        // With three analyzers, each of the first two has three of the eight buckets.
        assert_eq!(exact(both.node_reports.account().total.offered), 3 * 6);
        assert_eq!(both.node_reports.refused, 0);
    }
    assert_eq!(sums, (800, 784, 16));
}

#[test]
fn a_node_with_a_wrong_clock_is_named_and_counted_all_the_same() {
    let hour = i64::try_from(3600 * SECOND).unwrap();
    let mut both = Both::new(Part::WHOLE);
    for seconds in 0..30u64 {
        for node in 0..3 {
            let at = Report8 {
                seconds,
                // Node 2's clock is an hour behind. Node 1's clock is set back by an hour after ten
                // seconds.
                ahead: match node {
                    1 if seconds > 10 => -hour,
                    2 => -hour,
                    _ => 0,
                },
                // The time at which a node's counters began does not change when the node's clock
                // is set.
                age: if node == 2 { hour } else { 0 },
                seen: 9 * seconds.min(25),
                captured: 3 * seconds.min(25),
                ..Report8::default()
            };
            both.report(node, at);
        }
        both.settle(seconds);
        if seconds == 9 {
            assert_eq!(both.node_reports.clocks(), [(Some(NodeId(2)), -hour)]);
        }
    }
    let account = both.node_reports.account();
    let total = account.total;
    assert_eq!(account.nodes.len(), 3);
    let counted = (
        exact(total.offered),
        exact(total.captured),
        exact(total.lost),
    );
    assert_eq!(counted, (8 * 225, 8 * 225, 0));
}

/// Node 1 captures all packets. After five seconds its agent is killed, and three records of each
/// bucket are not sent. Later the node dies.
fn killed_agent(age: u64) -> Both {
    let mut both = Both::new(Part::WHOLE);
    let age = i64::try_from(age).unwrap();
    for seconds in 0..60u64 {
        let come = match seconds {
            0..=2 => 0,
            3..=9 => 10 * (seconds - 2),
            _ => 70,
        };
        let at = Report8 {
            seconds,
            age,
            seen: 100 + come,
            ..Report8::default()
        };
        if seconds < 20 {
            let captured = 100 + come;
            both.report(1, Report8 { captured, ..at });
        }
        both.report(2, at);
        both.settle(seconds);
        match seconds {
            0 if age == 0 => both.records(1, 0, 100),
            2..5 => both.records(1, seconds, 10),
            5 => {
                both.records(1, seconds, 7);
                both.restart(1, 2);
            }
            6..9 => both.records(1, seconds, 10),
            _ if seconds < 20 => both.idle(1, seconds),
            _ => {}
        }
        match seconds {
            // While packets come, the loss is unknown: the missing packets may still be on their
            // way.
            0..=9 => assert_eq!(both.export(1), (0, 0), "after {seconds} s"),
            11.. => assert_eq!(both.export(1), (24, 24), "after {seconds} s"),
            10 => {}
        }
    }
    both
}

#[test]
fn what_a_killed_agent_took_along_is_lost_on_the_way_at_rest() {
    for age in [0, 3600 * SECOND] {
        let total = killed_agent(age).node_reports.account().total;
        let offered = if age == 0 { 8 * 170 } else { 8 * 70 };
        let counted = (
            exact(total.offered),
            exact(total.captured),
            exact(total.lost),
        );
        assert_eq!(counted, (offered, offered, 0), "counters {age} ns old");
    }
}
