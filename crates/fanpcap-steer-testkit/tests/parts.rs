//! Checks that the filtering part and the steering part of a program together decide as the whole
//! program decides.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use fanpcap_steer::ir::{Function, Steer, Tree};
use fanpcap_steer::native::{Decision, Evaluator};
use fanpcap_steer::parts::{Parts, Unfit};
use fanpcap_steer_testkit::{Draw, Made, group_program, packet, packets, program, programs, tape};
use proptest::collection::vec;
use proptest::prelude::*;

/// A steering program and its parts, each with its own state.
struct Cut {
    whole: Evaluator,
    steering: Evaluator,
    filtering: Option<Evaluator>,
}

impl Cut {
    fn of(program: &Tree) -> Result<Self, Unfit> {
        let parts = Parts::of(program)?;
        Ok(Self {
            whole: Evaluator::of_group(program),
            steering: Evaluator::of_group(parts.steering()),
            filtering: parts.filtering().map(Evaluator::of_group),
        })
    }

    /// The decisions of the whole program, and of its two parts together.
    fn decide(&mut self, made: &Made, now_ns: u64) -> (Decision, Decision) {
        let packet = made.packet(now_ns);
        let kept = match &mut self.filtering {
            Some(filtering) => filtering.decide(&packet) != Decision::Drop,
            None => true,
        };
        let member = self.steering.decide(&packet);
        let together = if kept { member } else { Decision::Drop };
        (self.whole.decide(&packet), together)
    }
}

/// Whether a program steers in turn or at random. Then its decisions also depend on packets that it
/// has dropped, so the parts may choose another member.
fn has_turns(function: &Function) -> bool {
    let is_turn = matches!(function, Function::Steer(Steer::RoundRobin | Steer::Random));
    is_turn || function.children().any(has_turns)
}

/// Counts over many programs and packets.
#[derive(Debug, Default)]
struct Tally {
    fit: usize,
    without_filtering: usize,
    dropped: usize,
    steered: usize,
}

/// Compares the decisions on each packet, each time with evaluators that have seen no other packet.
fn each_alone(program: &Tree, packets: &[Made], tally: &mut Tally) {
    for made in packets {
        let Ok(mut cut) = Cut::of(program) else {
            return;
        };
        let (whole, together) = cut.decide(made, 0);
        let is_dropped = whole == Decision::Drop;
        assert_eq!(
            together == Decision::Drop,
            is_dropped,
            "{made:?}\n{program:#?}"
        );
        if !has_turns(&program.main) {
            assert_eq!(together, whole, "{made:?}\n{program:#?}");
        }
        assert!(matches!(
            whole,
            Decision::Drop | Decision::Steer(0..=0x7fff_ffff) | Decision::Member(0..=0x7fff_ffff)
        ));
        tally.dropped += usize::from(is_dropped);
        tally.steered += usize::from(!is_dropped);
    }
    tally.fit += 1;
    tally.without_filtering += usize::from(Parts::of(program).unwrap().filtering().is_none());
}

/// Compares the decisions on packets one after the other, with evaluators that keep their state.
/// Drops, counters and samples must be equal.
fn one_after_the_other(program: &Tree, packets: &[Made]) {
    let Ok(mut cut) = Cut::of(program) else {
        return;
    };
    let mut now_ns = 0;
    for made in packets {
        now_ns += made.gap_ns;
        let (whole, together) = cut.decide(made, now_ns);
        assert_eq!(
            together == Decision::Drop,
            whole == Decision::Drop,
            "{made:?}\n{program:#?}"
        );
    }
    let counted = cut
        .filtering
        .as_ref()
        .map_or([0; 64], |filtering| *filtering.counters());
    assert_eq!(&counted, cut.whole.counters(), "{program:#?}");
    assert_eq!(cut.steering.counters(), &[0; 64]);
    let late = cut.filtering.map_or(0, |filtering| filtering.late());
    assert_eq!(late, 0, "only the steering part handles fragments");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_parts_say_what_the_whole_says(program in group_program(), packets in vec(packet(), 1..8)) {
        each_alone(&program, &packets, &mut Tally::default());
        one_after_the_other(&program, &packets);
    }

    /// A kernel group refuses most of these programs. The programs that it accepts must have the
    /// same properties.
    #[test]
    fn of_any_program(program in program(), packets in vec(packet(), 1..8)) {
        each_alone(&program, &packets, &mut Tally::default());
        one_after_the_other(&program, &packets);
    }
}

/// Checks that the tests above test something: that they compare many programs, which drop some
/// packets and steer others.
#[test]
fn most_programs_fit_and_decide_both_ways() {
    let mut tally = Tally::default();
    let packets: Vec<Made> = (0..20)
        .map(|seed| packets::packet(&mut Draw::new(&tape(seed, 400))))
        .collect();
    let count = 2000;
    for seed in 0..count {
        let program = programs::group_program(&mut Draw::new(&tape(seed, 300)));
        each_alone(&program, &packets, &mut tally);
        one_after_the_other(&program, &packets);
    }
    println!("{tally:?}");
    assert!(tally.fit > 1600, "{tally:?}");
    assert!(tally.without_filtering > 50, "{tally:?}");
    assert!(tally.dropped > 8000 && tally.steered > 8000, "{tally:?}");
}
