//! The verdict: each check and its outcome, from the members' counters and their flows.

use fanpcap_capture::{Counts, Kernel, Rest, Witnessed, sum};
use fanpcap_wire::FlowKey;
use serde::Serialize;

use super::flows::Places;
use crate::flow::shown;

/// Whether a check holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    /// The check holds.
    Ok,
    /// The check does not hold.
    Fail,
    /// There was nothing to check, or too little for a verdict.
    Open,
}

impl Outcome {
    /// The word for the outcome in the text.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Fail => "FAIL",
            Self::Open => "open",
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) outcome: Outcome,
    pub(super) what: String,
    /// Flows that show the outcome.
    pub(super) examples: Vec<String>,
}

/// Number of flows that are named as examples.
const EXAMPLES: usize = 3;

/// With fewer flows for each member, chance alone makes the shares uneven.
const FLOWS_FOR_SHARES: usize = 64;

/// With fewer packets that could have come to another member than the first one of their flow and
/// direction, chance alone may keep flows whole. Among two members it does so once in 2^20 times.
const REPEATS_FOR_FLOWS: u64 = 20;

/// With fewer flows in both directions, chance alone may bring the directions together.
const FLOWS_FOR_DIRECTIONS: usize = 7;

/// The busiest member may have at most this many times the mean number of packets.
const UNEVEN: f64 = 2.0;

/// Everything that the checks need.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    /// The members' counters.
    pub(super) captured: &'a Witnessed,
    /// Packets of each member after all members had joined.
    pub(super) packets: &'a [u64],
    /// Which members got which flows after all members had joined.
    pub(super) places: &'a Places,
    /// One in this many flows was examined.
    pub(super) one_in: u64,
}

/// All checks.
pub(super) fn checks(seen: &Seen<'_>) -> Vec<Check> {
    vec![
        shares(seen),
        flows(seen),
        directions(seen),
        ledger(seen.captured),
        loss(seen.captured),
    ]
}

/// The result of all checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// No check failed.
    Verified,
    /// No check failed, but too few packets came to judge flows.
    TooLittle,
    /// A check failed.
    Failed,
}

impl Verdict {
    /// The result of `checks`.
    pub(super) fn of(checks: &[Check]) -> Self {
        let has = |outcome| move |it: &&Check| it.outcome == outcome;
        if checks.iter().any(|it| has(Outcome::Fail)(&it)) {
            return Self::Failed;
        }
        let mut open = checks.iter().filter(has(Outcome::Open));
        match open.any(|it| it.name == FLOWS) {
            true => Self::TooLittle,
            false => Self::Verified,
        }
    }
}

const FLOWS: &str = "flows";

fn check(name: &'static str, outcome: Outcome, what: String) -> Check {
    Check {
        name,
        outcome,
        what,
        examples: Vec::new(),
    }
}

fn holds(holds: bool) -> Outcome {
    match holds {
        true => Outcome::Ok,
        false => Outcome::Fail,
    }
}

/// The ratio of the busiest member's packets to the mean; `None` without packets.
#[allow(
    clippy::cast_precision_loss,
    reason = "a ratio of counts far below 2^53"
)]
pub(super) fn skew(packets: &[u64]) -> Option<f64> {
    let (all, busiest) = (packets.iter().sum::<u64>(), packets.iter().max()?);
    (all > 0).then(|| *busiest as f64 * packets.len() as f64 / all as f64)
}

fn shares(seen: &Seen<'_>) -> Check {
    let Some(skew) = skew(seen.packets) else {
        return check("shares", Outcome::Open, "no packets came".to_owned());
    };
    let Places {
        flows,
        packets,
        largest,
        ..
    } = *seen.places;
    let members = seen.packets.len();
    let what = format!("the busiest member has {skew:.2} times the mean");
    let flows_all = flows as u64 * seen.one_in;
    let is_elephant = largest * members as u64 > packets && members > 1;
    let elephant = match is_elephant {
        true => "; one flow alone is more than a member's fair share",
        false => "",
    };
    let outcome = match skew <= UNEVEN {
        true => Outcome::Ok,
        false if is_elephant || flows_all < (FLOWS_FOR_SHARES * members) as u64 => Outcome::Open,
        false => Outcome::Fail,
    };
    check("shares", outcome, format!("{what}{elephant}"))
}

fn flows(seen: &Seen<'_>) -> Check {
    let Places {
        flows,
        two_way,
        packets,
        split,
        apart,
        ..
    } = seen.places;
    if *flows == 0 {
        return check(FLOWS, Outcome::Open, "no flows were seen".to_owned());
    }
    let of = sampled(*flows, seen.one_in);
    // If directions may go apart, only packets of the same direction must go together.
    let parts = if apart.is_empty() { 0 } else { *two_way };
    let repeats = packets.saturating_sub((flows + parts) as u64);
    let what = match split.len() {
        0 if repeats < REPEATS_FOR_FLOWS => {
            let what = format!(
                "each of {of} was at one member, but only {repeats} packets followed another one of their flow"
            );
            return check(FLOWS, Outcome::Open, what);
        }
        0 => format!("each of {of} was at one member"),
        count => format!("{count} of {of} were at several members"),
    };
    Check {
        examples: split.iter().take(EXAMPLES).map(shown).collect(),
        ..check(FLOWS, holds(split.is_empty()), what)
    }
}

fn directions(seen: &Seen<'_>) -> Check {
    let Places {
        flows,
        two_way,
        one_way,
        apart,
        split,
        ..
    } = seen.places;
    let open = |what: &str| check("directions", Outcome::Open, what.to_owned());
    if *two_way == 0 {
        return open("no flow had packets in both directions");
    }
    if apart.is_empty() && !split.is_empty() {
        return open("packets of one direction were at several members already");
    }
    let what = match apart.len() {
        0 => format!("both directions of each of {two_way} flows were at one member"),
        count => format!("the directions of {count} of {two_way} flows were at different members"),
    };
    let others = match flows.saturating_sub(*two_way) {
        0 => String::new(),
        count => format!("; {count} had one direction only"),
    };
    let outcome = match apart.is_empty() {
        true if *two_way < FLOWS_FOR_DIRECTIONS => Outcome::Open,
        is_empty => holds(is_empty),
    };
    let examples: Vec<&FlowKey> = match apart.is_empty() {
        true => one_way.iter().collect(),
        false => apart.iter().take(EXAMPLES).collect(),
    };
    Check {
        examples: examples.into_iter().map(shown).collect(),
        ..check("directions", outcome, what + &others)
    }
}

fn sampled(flows: usize, one_in: u64) -> String {
    match one_in {
        1 => format!("{flows} flows"),
        _ => format!("{flows} flows (a sample, one in {one_in})"),
    }
}

fn ledger(captured: &Witnessed) -> Check {
    let total = sum(captured.members.iter().copied());
    let mut rest = Rest::default();
    let rests = captured.members.iter().filter_map(Counts::rest);
    rests.for_each(|more| rest += more);
    let Kernel {
        received, dropped, ..
    } = total.kernel.unwrap_or_default();
    let (delivered, unread, unexplained) = (total.captured, rest.unread, rest.late + rest.off);
    let mut what = format!("received {received} = delivered {delivered} + dropped {dropped}");
    if unread > 0 {
        what += &format!(" + unread {unread}");
    }
    if unexplained > 0 {
        what += &format!(": off by {unexplained}");
    }
    check("ledger", holds(unexplained == 0), what)
}

fn loss(captured: &Witnessed) -> Check {
    let total = sum(captured.members.iter().copied());
    let dropped = total.kernel.unwrap_or_default().dropped;
    let of_device = captured.device.map(|(_, dropped)| dropped);
    let device = of_device.map_or_else(|| "not known".to_owned(), |it| it.to_string());
    let what =
        format!("the rings had no room for {dropped} packets; dropped by the device: {device}");
    check(
        "loss",
        holds(dropped == 0 && of_device.unwrap_or(0) == 0),
        what,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_wire::Endpoint;

    fn key() -> FlowKey {
        let end = |last, port| Endpoint {
            address: std::net::IpAddr::from([10, 0, 0, last]),
            port,
        };
        FlowKey::new(end(1, 80), end(2, 1024), 6)
    }

    fn healthy() -> (Witnessed, Vec<u64>, Places) {
        let kernel = Kernel {
            received: 110,
            ..Kernel::default()
        };
        let member = Counts {
            captured: 110,
            kernel: Some(kernel),
            read_to_end: true,
            ..Counts::default()
        };
        let captured = Witnessed {
            members: vec![member; 2],
            device: Some((220, 0)),
        };
        let places = Places {
            flows: 200,
            two_way: 100,
            packets: 1000,
            largest: 3,
            ..Places::default()
        };
        (captured, vec![100, 100], places)
    }

    fn outcomes(captured: &Witnessed, packets: &[u64], places: &Places) -> Vec<Outcome> {
        let seen = Seen {
            captured,
            packets,
            places,
            one_in: 1,
        };
        checks(&seen).iter().map(|it| it.outcome).collect()
    }

    use Outcome::{Fail, Ok, Open};

    #[test]
    fn a_healthy_group_passes() {
        let (captured, packets, places) = healthy();
        assert_eq!(outcomes(&captured, &packets, &places), [Ok; 5]);
    }

    #[test]
    fn without_packets_nothing_is_judged() {
        let nothing = Witnessed {
            members: vec![Counts::default(); 2],
            device: None,
        };
        let found = outcomes(&nothing, &[0, 0], &Places::default());
        assert_eq!(found, [Open, Open, Open, Ok, Ok]);
    }

    #[test]
    fn of_few_packets_nothing_is_judged() {
        let (captured, packets, mut places) = healthy();
        let verdict = |places: &Places| {
            let seen = Seen {
                captured: &captured,
                packets: &packets,
                places,
                one_in: 1,
            };
            let checks = checks(&seen);
            let outcomes: Vec<Outcome> = checks.iter().map(|it| it.outcome).collect();
            (outcomes[1], outcomes[2], Verdict::of(&checks))
        };
        assert_eq!(verdict(&places), (Ok, Ok, Verdict::Verified));
        // Three echo requests and their answers.
        (places.flows, places.two_way, places.packets) = (1, 1, 6);
        assert_eq!(verdict(&places), (Open, Open, Verdict::TooLittle));
        places.apart = vec![key()];
        assert_eq!(verdict(&places), (Open, Fail, Verdict::Failed));
        (places.split, places.apart) = (vec![key()], Vec::new());
        assert_eq!(verdict(&places), (Fail, Open, Verdict::Failed));
        // Many queries with one answer each.
        (places.split, places.flows, places.two_way) = (Vec::new(), 1000, 1000);
        places.packets = 2000;
        assert_eq!(verdict(&places), (Ok, Ok, Verdict::Verified));
        (places.flows, places.two_way) = (1, 1);
        // Few flows that many packets share.
        (places.split, places.packets) = (Vec::new(), 22);
        assert_eq!(verdict(&places), (Ok, Open, Verdict::Verified));
    }

    #[test]
    fn flows_in_several_places_fail_with_examples() {
        let (captured, packets, mut places) = healthy();
        places.split = vec![key(); 5];
        assert_eq!(
            outcomes(&captured, &packets, &places),
            [Ok, Fail, Open, Ok, Ok]
        );
        let seen = Seen {
            captured: &captured,
            packets: &packets,
            places: &places,
            one_in: 4,
        };
        let check = flows(&seen);
        assert_eq!(check.examples, vec!["tcp 10.0.0.1:80 - 10.0.0.2:1024"; 3]);
        assert_eq!(
            check.what,
            "5 of 200 flows (a sample, one in 4) were at several members"
        );
        (places.split, places.apart) = (Vec::new(), vec![key()]);
        assert_eq!(
            outcomes(&captured, &packets, &places),
            [Ok, Ok, Fail, Ok, Ok]
        );
    }

    #[test]
    fn flows_in_one_direction_are_not_silent() {
        let (captured, packets, mut places) = healthy();
        (places.two_way, places.one_way) = (196, Some(key()));
        let seen = Seen {
            captured: &captured,
            packets: &packets,
            places: &places,
            one_in: 1,
        };
        let Check { what, examples, .. } = directions(&seen);
        assert_eq!(
            what,
            "both directions of each of 196 flows were at one member; 4 had one direction only"
        );
        assert_eq!(examples, ["tcp 10.0.0.1:80 - 10.0.0.2:1024"]);
    }

    #[test]
    fn uneven_shares_fail_unless_chance_or_one_flow_makes_them() {
        let (captured, _, mut places) = healthy();
        let packets = [100, 5, 5];
        assert_eq!(outcomes(&captured, &packets, &places)[0], Fail);
        places.largest = 400;
        assert_eq!(outcomes(&captured, &packets, &places)[0], Open);
        (places.largest, places.flows) = (3, 10);
        assert_eq!(outcomes(&captured, &packets, &places)[0], Open);
    }

    #[test]
    fn what_is_lost_or_not_explained_fails() {
        let (mut captured, packets, places) = healthy();
        let healthy = captured.members[0].kernel;
        captured.members[0].kernel = Some(Kernel {
            received: 111,
            dropped: 1,
            ..Kernel::default()
        });
        assert_eq!(
            outcomes(&captured, &packets, &places),
            [Ok, Ok, Ok, Ok, Fail]
        );
        captured.members[0].kernel = healthy;
        captured.device = Some((220, 1));
        assert_eq!(
            outcomes(&captured, &packets, &places),
            [Ok, Ok, Ok, Ok, Fail]
        );
        captured.device = None;
        captured.members[1].captured -= 2;
        assert_eq!(
            outcomes(&captured, &packets, &places),
            [Ok, Ok, Ok, Fail, Ok]
        );
    }
}
