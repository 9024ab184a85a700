//! Compares the back ends on programs and packets that are drawn from seeds.

use std::time::Instant;

use fanpcap_steer_testkit::{Draw, programs, tape};

use super::case::Case;
use super::group::Group;
use super::side::HOOKS;
use super::traffic::drawn;
use super::workers::all_agree;

/// Number of packets for each program.
const PACKETS: usize = 500;
/// Number of pairs of program and packet.
const PAIRS: u64 = 100_000;

pub(crate) fn case(seed: u64) -> Case {
    let tape = tape(!seed, 300);
    let mut draw = Draw::new(&tape);
    // Some programs can't run in a kernel group. They are compared at XDP only.
    let program = match seed % 8 {
        3 => programs::program(&mut draw),
        1 | 5 | 7 => programs::device_program(&mut draw),
        _ => programs::group_program(&mut draw),
    };
    Case {
        program,
        source: String::new(),
        shots: drawn(seed, PACKETS).shots,
        hooks: &HOOKS,
        group: Group(seed),
    }
}

/// Compares `pairs` pairs of program and packet, unless FANPCAP_PROOF_PACKETS sets another number.
fn agree(pairs: u64) {
    let set = std::env::var("FANPCAP_PROOF_PACKETS");
    let pairs = set.map_or(pairs, |pairs| pairs.parse().unwrap());
    let count = pairs.div_ceil(PACKETS as u64);
    let first = std::env::var("FANPCAP_PROOF_SEED").map_or(0, |seed| seed.parse().unwrap());
    let begin = Instant::now();
    let outcome = all_agree(count, |number| case(first + number));
    println!(
        "{count} programs, {pairs} pairs in {:?}: {outcome:#?}",
        begin.elapsed()
    );
}

#[test]
#[ignore = "needs root: eBPF"]
fn drawn_programs_agree_on_drawn_packets() {
    agree(PAIRS);
}

mod long {
    use super::*;

    #[test]
    #[ignore = "needs root: eBPF"]
    fn many_drawn_programs_agree_on_drawn_packets() {
        agree(10 * PAIRS);
    }
}
