//! Checks that the drawn packets and programs are useful for tests. Each predicate must often be
//! true and often be false, and each function must drop some packets and pass others.

use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

use fanpcap_steer::ir::{
    Field, Flow, Function, Header, Key, Node, Predicate, Property, Steer, Tree,
};
use fanpcap_steer::native::{Decision, Evaluator};
use fanpcap_steer_testkit::{Draw, Made, packets, programs, tape};

const PACKETS: u64 = 20_000;

/// The packets are drawn once, so that all shares refer to the same packets.
static DRAWN: LazyLock<Vec<Made>> = LazyLock::new(|| {
    let drawn = (0..PACKETS).map(|seed| packets::packet(&mut Draw::new(&tape(seed, 400))));
    drawn.collect()
});

/// The share of packets for which the predicate holds, in hundredths of a percent.
fn share(predicate: &Predicate) -> u64 {
    let holds = Function::If(
        Box::new(predicate.clone()),
        Box::new(Function::Pass),
        Box::new(Function::Drop),
    );
    kept(holds)
}

fn kept(main: Function) -> u64 {
    let mut evaluator = Evaluator::of_group(&Tree {
        main,
        sets: Vec::new(),
        filters: Vec::new(),
    });
    let kept = DRAWN
        .iter()
        .filter(|made| evaluator.decide(&made.packet(0)) != Decision::Drop);
    kept.count() as u64 * 10_000 / PACKETS
}

/// Checks that each predicate is true for at least one in a hundred packets, and false for at least
/// one in a hundred.
fn assert_both_ways(shares: &[(String, u64)]) {
    let rare: Vec<_> = shares
        .iter()
        .filter(|(_, share)| !(100..=9900).contains(share))
        .collect();
    assert!(rare.is_empty(), "{rare:?}");
}

#[test]
fn headers_are_there_and_are_not() {
    // Nearly every packet has a link header.
    let headers = Header::ALL.iter().filter(|&&header| header != Header::Link);
    let mut shares: Vec<_> = headers
        .map(|&header| (format!("{header:?}"), share(&Predicate::Has(header))))
        .collect();
    shares.push(("Rtp".to_owned(), share(&Predicate::Rtp)));
    shares.push(("Rtcp".to_owned(), share(&Predicate::Rtcp)));
    println!("{shares:?}");
    assert_both_ways(&shares);
    assert!(share(&Predicate::Has(Header::Link)) < 9950);
}

#[test]
fn packets_are_steered_and_dropped_by_each_function() {
    let field = |offset| Field { offset, len: 4 };
    let key = Key::SOURCE_PORT.and(Key::IP_SOURCE);
    let steers = [
        Steer::Flow(Flow::WHOLE),
        Steer::Vlan,
        Steer::Field(field(50)),
        Steer::Fields(field(50), field(60)),
        Steer::Key(key),
        Steer::Key(Key::ICMP_TYPE),
        Steer::Media,
        Steer::Gtp,
    ];
    let shares: Vec<_> = steers
        .into_iter()
        .map(|steer| (format!("{steer:?}"), kept(Function::Steer(steer))))
        .collect();
    println!("{shares:?}");
    assert_both_ways(&shares);
}

/// Names of the nodes in the drawn programs.
#[derive(Default)]
struct Parts {
    met: BTreeMap<String, usize>,
}

impl Parts {
    fn meet(&mut self, part: &impl std::fmt::Debug) {
        let text = format!("{part:?}");
        let end = text.find([' ', '(', '{']).unwrap_or(text.len());
        *self.met.entry(text[..end].to_owned()).or_default() += 1;
    }

    fn function(&mut self, function: &Function) {
        self.meet(function);
        if let Function::Steer(steer) = function {
            self.meet(steer);
        }
    }

    fn predicate(&mut self, predicate: &Predicate) {
        self.meet(predicate);
        if let Predicate::Compare(_, comparison, _) = predicate {
            self.meet(comparison);
        }
        if let Predicate::Compare(property, ..) | Predicate::Member(property, _) = predicate {
            self.meet(property);
        }
        if let Predicate::Has(header) = predicate {
            self.meet(header);
        }
    }
}

#[test]
fn programs_have_all_parts() {
    let mut parts = Parts::default();
    let mut decided = BTreeMap::new();
    for seed in 0..2000 {
        let program = programs::program(&mut Draw::new(&tape(seed, 300)));
        program.main.walk(&mut |node| match node {
            Node::Function(function) => parts.function(function),
            Node::Predicate(predicate) => parts.predicate(predicate),
        });
        let mut evaluator = Evaluator::new(&program);
        for made in DRAWN.iter().take(50) {
            let decision = format!("{:?}", evaluator.decide(&made.packet(0)));
            let kind = decision.split('(').next().unwrap_or_default().to_owned();
            *decided.entry(kind).or_insert(0_usize) += 1;
        }
    }
    println!("{:?}\n{decided:?}", parts.met);
    // The language has 15 functions, 19 ways to steer, 15 predicates, 19 properties, 8 comparisons
    // and 13 headers. The generated programs must contain nearly all of their names. Some names
    // belong to two nodes, such as Link and Drop.
    let functions = [
        "Pass", "Drop", "Sequence", "If", "First", "Inverse", "Inner", "Steer",
    ];
    let more = [
        "Broadcast",
        "Classify",
        "Host",
        "Mark",
        "Count",
        "SetState",
        "Sample",
    ];
    for name in functions.iter().chain(&more) {
        assert!(parts.met.get(*name).is_some_and(|met| *met > 20), "{name}");
    }
    let rare: HashSet<_> = parts.met.iter().filter(|(_, met)| **met < 10).collect();
    assert!(rare.is_empty(), "{rare:?}");
    assert!(parts.met.len() >= 75, "{}", parts.met.len());
    assert!(
        decided.len() == 6 && decided.values().all(|count| *count > 500),
        "{decided:?}"
    );
}

/// Checks that for each property, many packets have the property with its usual numbers, and other
/// packets do not have it.
#[test]
fn properties_are_there_and_are_not() {
    let properties = [
        Property::EtherType,
        Property::VlanId,
        Property::Protocol,
        Property::IpId,
        Property::TcpSource,
        Property::UdpSource,
        Property::IcmpType,
        Property::Mark,
        Property::Queue,
    ];
    let is_there = |property| {
        let any = fanpcap_steer::ir::Comparison::GreaterEqual;
        share(&Predicate::Compare(property, any, 0))
    };
    let shares: Vec<_> = properties
        .iter()
        .map(|&property| (format!("{property:?}"), is_there(property)))
        .collect();
    println!("{shares:?}");
    assert_both_ways(&shares[1..]);
    assert!(shares[0].1 < 9990, "{shares:?}");
}
