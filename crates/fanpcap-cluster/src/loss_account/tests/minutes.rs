//! A verdict on a port covers only the last five minutes. Earlier losses are in the history.

use fanpcap_buckets::layout::BUCKETS;

use super::model::SECOND;
use super::named::{BEGIN, ledger, report};
use crate::identity::NodeId;
use crate::loss_account::port::RECENT;
use crate::loss_account::{Ledger, LedgerSettings, PortHistory, Report, Verdict};
use crate::topology::NODES;

/// The length of the period that a verdict covers, in seconds.
const MINUTES: u64 = RECENT / SECOND;

/// A cluster of nodes with ports, simulated second by second.
struct Cluster {
    ledger: Ledger,
    seconds: u64,
    /// Seconds between two reports of a node.
    pause: u64,
    /// How many packets of each bucket came to each port.
    came: Vec<u64>,
    is_silent: Vec<bool>,
    /// Whether the port of node 1 delivers no beacons.
    is_dark: bool,
    beacon: u64,
    offered: u64,
}

impl Cluster {
    fn new(nodes: usize) -> Self {
        Self::with(ledger(), nodes)
    }

    fn with(ledger: Ledger, nodes: usize) -> Self {
        let mut cluster = Self {
            ledger,
            seconds: 0,
            pause: 1,
            came: vec![0; nodes],
            is_silent: vec![false; nodes],
            is_dark: false,
            beacon: 0,
            offered: 0,
        };
        cluster.report();
        cluster.rest(3);
        cluster
    }

    /// Runs one second. The port of node 1 gets `port` packets of each bucket, and each other port
    /// gets `packets`.
    fn second(&mut self, packets: u64, port: u64) {
        self.seconds += 1;
        self.offered += packets;
        for (node, came) in self.came.iter_mut().enumerate() {
            *came += if node == 1 { port } else { packets };
        }
        if !self.is_dark {
            self.beacon = self.seconds;
        }
        if self.seconds % self.pause == 0 {
            self.report();
        }
    }

    fn report(&mut self) {
        for (node, came) in self.came.iter().enumerate() {
            if self.is_silent[node] {
                continue;
            }
            let mut report = report(u32::try_from(node).unwrap(), self.seconds, |_| *came);
            if node == 1 {
                report.summary.beacon.sequence = self.beacon;
            }
            self.ledger.take(report).unwrap();
        }
        self.ledger.settle();
    }

    /// Kills a node.
    fn leave(&mut self, node: u32) {
        self.is_silent[node as usize] = true;
        let at = BEGIN + self.seconds * SECOND;
        self.ledger.end(NodeId(node), at, None);
    }

    fn rest(&mut self, seconds: u64) {
        (0..seconds).for_each(|_| self.second(0, 0));
    }

    /// Runs this traffic until the verdict on node 1 is as wanted. Returns the number of seconds.
    fn until(&mut self, (packets, port): (u64, u64), wanted: fn(Verdict) -> bool) -> u64 {
        let begin = self.seconds;
        while !wanted(self.verdict()) {
            self.second(packets, port);
            assert!(self.seconds < begin + 5000, "{:?}", self.verdict());
        }
        self.seconds - begin
    }

    fn verdict(&self) -> Verdict {
        self.ledger.verdict(NodeId(1)).unwrap()
    }

    fn history(&self) -> Vec<PortHistory> {
        self.ledger.account().history
    }
}

fn is_lossy(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Lossy(_))
}

fn is_sound(verdict: Verdict) -> bool {
    verdict == Verdict::Sound
}

#[test]
fn a_port_that_lost_for_eight_seconds_is_named_for_five_minutes_and_again() {
    let mut cluster = Cluster::new(3);
    // Only node 1 loses packets. It has a third of the buckets.
    let own = (0..BUCKETS).filter(|bucket| bucket % 3 == 1).count();
    let own = u64::try_from(own).unwrap();
    let all = u64::try_from(BUCKETS).unwrap();
    (0..20).for_each(|_| cluster.second(10, 10));
    assert_eq!(cluster.history(), []);
    let mut lost = 0;
    for times in 1..=2 {
        let begin = cluster.seconds;
        let named = cluster.until((10, 5), is_lossy);
        assert!(named <= 5, "after {named} s");
        (named..8).for_each(|_| cluster.second(10, 5));
        lost += 8 * 5;
        let end = cluster.seconds;
        (0..4).for_each(|_| cluster.second(10, 10));
        // `parts` is the number of lost packets in a million packets of the last five minutes.
        // While packets come, a part of the loss is uncertain and not in `parts`.
        let Verdict::Lossy(parts) = cluster.verdict() else {
            panic!("{:?}", cluster.verdict())
        };
        assert!(parts > 5_000, "{parts}");
        cluster.rest(3);
        let total = cluster.ledger.account().total.lost;
        assert!(total.is_exact(), "{total:?}");
        assert_eq!(u64::try_from(total.least).unwrap(), lost * own);
        let ended = cluster.until((10, 10), is_sound);
        let since = 4 + 3 + ended;
        // The last loss became certain within three reports after the traffic stopped.
        assert!((MINUTES - 15..=MINUTES + 7).contains(&since), "{since} s");
        let [port] = cluster.history()[..] else {
            panic!("{:?}", cluster.history())
        };
        assert_eq!((port.node, port.worst.name()), (NodeId(1), "lossy"));
        assert_eq!(u64::try_from(port.packets).unwrap(), lost * all);
        let second = |time: u64| (time - BEGIN) / SECOND;
        assert!(times == 2 || (begin..=begin + 5).contains(&second(port.since)));
        assert!(
            (end..=end + 7).contains(&second(port.last)),
            "{port:?}, {end}"
        );
        (0..20).for_each(|_| cluster.second(10, 10));
        assert_eq!(cluster.verdict(), Verdict::Sound);
    }
}

#[test]
fn without_traffic_a_lossy_port_is_named_for_five_minutes() {
    let mut cluster = Cluster::new(3);
    (0..8).for_each(|_| cluster.second(10, 9));
    cluster.rest(3);
    assert!(is_lossy(cluster.verdict()));
    let ended = cluster.until((0, 0), is_sound);
    assert!((MINUTES - 15..=MINUTES + 1).contains(&ended), "{ended} s");
}

#[test]
fn faster_traffic_takes_no_proof_back() {
    let mut cluster = Cluster::new(3);
    (0..20).for_each(|_| cluster.second(10, 10));
    cluster.until((10, 5), is_lossy);
    (0..60).for_each(|_| {
        cluster.second(100, 100);
        assert!(is_lossy(cluster.verdict()), "{} s", cluster.seconds);
    });
}

/// When traffic slows down, an old loss of a port may become certain. A loss from before the last
/// five minutes does not change the verdict `sound`.
#[test]
fn old_losses_that_slower_traffic_proves_are_no_verdict() {
    let mut cluster = Cluster::new(2);
    cluster.pause = 2;
    (0..60).for_each(|_| cluster.second(200, 180));
    assert!(is_lossy(cluster.verdict()));
    let ended = cluster.until((200, 200), is_sound);
    assert!(ended <= MINUTES + 2, "{ended} s");
    let before = cluster.history()[0].packets;
    for packets in (2..200).rev() {
        for _ in 0..4 {
            cluster.second(packets, packets);
            assert_eq!(cluster.verdict(), Verdict::Sound, "{packets} a second");
        }
    }
    // The lost packets are in the history.
    let [port] = cluster.history()[..] else {
        panic!("{:?}", cluster.history())
    };
    assert!(port.packets > before, "{port:?}");
    cluster.rest(8);
    let all = 60 * 20 * i64::try_from(BUCKETS).unwrap();
    assert_eq!(cluster.history()[0].packets, all);
    assert_eq!(cluster.verdict(), Verdict::Sound);
}

/// A port that continues to lose packets stays lossy, and the verdict has the right loss rate.
#[test]
fn a_port_that_goes_on_losing_stays_named() {
    let mut cluster = Cluster::new(2);
    cluster.pause = 4;
    cluster.until((40, 36), is_lossy);
    for _ in 0..3 * MINUTES {
        cluster.second(40, 36);
        assert!(is_lossy(cluster.verdict()), "after {} s", cluster.seconds);
    }
    let Verdict::Lossy(parts) = cluster.verdict() else {
        panic!()
    };
    assert!((60_000..=110_000).contains(&parts), "{parts}");
}

#[test]
fn a_blind_port_that_sees_again_is_lossy_for_five_minutes() {
    let mut cluster = Cluster::new(3);
    (0..10).for_each(|_| cluster.second(10, 10));
    cluster.is_dark = true;
    let named = cluster.until((10, 0), |it| it == Verdict::Blind);
    assert!(named <= 6, "{named} s");
    (named..8).for_each(|_| cluster.second(10, 0));
    cluster.is_dark = false;
    let lossy = cluster.until((10, 10), is_lossy);
    assert!(lossy <= 2, "{lossy} s");
    let ended = cluster.until((10, 10), is_sound);
    assert!((MINUTES - 15..=MINUTES + 5).contains(&ended), "{ended} s");
    assert_eq!(cluster.history()[0].worst, Verdict::Blind);
}

#[test]
fn a_port_that_was_double_is_believed_when_it_is_single_again() {
    let mut cluster = Cluster::new(3);
    let named = cluster.until((10, 20), |it| it == Verdict::Surplus);
    assert!(named <= 3, "{named} s");
    // The verdict stays until the ledger has dropped the reports that count doubled packets.
    let ended = cluster.until((10, 10), is_sound);
    assert!(ended <= 25, "{ended} s");
    assert_eq!(cluster.history()[0].worst, Verdict::Surplus);
}

#[test]
fn a_blind_port_without_traffic_or_company_is_not_named_for_ever() {
    // Two cases: all traffic stops, or the port sees packets again after the other nodes have gone.
    for is_alone in [false, true] {
        let mut cluster = Cluster::new(3);
        cluster.until((10, 0), |it| it == Verdict::Blind);
        let ended = if is_alone {
            cluster.leave(0);
            cluster.leave(2);
            // The verdict becomes lossy, because the blind port delivered no packets.
            cluster.until((10, 10), |it| it != Verdict::Blind)
        } else {
            cluster.beacon = 0;
            cluster.until((0, 0), |it| it != Verdict::Blind)
        };
        let most = if is_alone { 3 } else { MINUTES + 25 };
        assert!(ended <= most, "{ended} s");
    }
}

#[test]
fn a_port_that_was_double_is_believed_when_nobody_else_sees() {
    let mut cluster = Cluster::new(3);
    cluster.until((10, 20), |it| it == Verdict::Surplus);
    cluster.rest(3);
    for node in [0, 2] {
        cluster.leave(node);
    }
    cluster.rest(3);
    let before = cluster.ledger.account().total.offered.least;
    (0..20).for_each(|_| cluster.second(10, 10));
    cluster.rest(3);
    let came = cluster.ledger.account().total.offered.least - before;
    assert_eq!(came, 200 * i64::try_from(BUCKETS).unwrap());
}

#[test]
fn an_analyzer_that_begins_names_nobody_for_what_was() {
    // The nodes' counters are older than the ledger. Before the ledger began, node 1 missed a tenth
    // of the packets.
    let settings = LedgerSettings {
        skew: SECOND / 5,
        begin: BEGIN + 50 * SECOND,
        analyzed: true,
    };
    let mut ledger = Ledger::new(settings);
    for seconds in 51..80u64 {
        for node in 0..3 {
            let before = 1000 - u64::from(node == 1) * 100;
            ledger
                .take(report(node, seconds, |_| before + 10 * seconds))
                .unwrap();
        }
        ledger.settle();
        for node in 0..3 {
            let verdict = ledger.verdict(NodeId(node));
            assert_eq!(verdict, Some(Verdict::Sound), "node {node}, {seconds} s");
        }
    }
    assert_eq!(ledger.account().history, []);
}

#[test]
fn the_history_has_as_many_ports_as_a_cluster_nodes() {
    let mut ledger = ledger();
    let many = u32::try_from(NODES).unwrap() + 10;
    // Nodes come and die one after the other. Their ports lose half of the packets.
    let take = |ledger: &mut Ledger, node: u32, seconds: u64, packets: u64| {
        let mut report: Report = report(node, seconds, |_| packets);
        report.summary.since = BEGIN;
        ledger.take(report).unwrap();
    };
    let mut seconds = 0;
    let mut came = 0;
    for node in 1..=many {
        for step in 0..4 {
            seconds += 1;
            came += 10 * u64::from(step == 1);
            take(&mut ledger, 0, seconds, came);
            take(&mut ledger, node, seconds, 0);
            ledger.settle();
        }
        let named = ledger.verdict(NodeId(node)) != Some(Verdict::Sound);
        assert!(named, "node {node}");
        ledger.end(NodeId(node), BEGIN + seconds * SECOND, None);
        for _ in 0..2 {
            seconds += 1;
            take(&mut ledger, 0, seconds, came);
            ledger.settle();
        }
    }
    let history = ledger.account().history;
    assert_eq!(history.len(), NODES);
    let newest = history.last().map(|port| port.node);
    assert_eq!(newest, Some(NodeId(many)));
    assert!(history.iter().all(|port| port.node > NodeId(10)));
}
