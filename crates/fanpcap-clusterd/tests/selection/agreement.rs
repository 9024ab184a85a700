//! Drawn packets, tables and frames of coordinators, by each key.

use fanpcap_clusterd::selector::Selector;
use fanpcap_select::layout::Lanes;
use fanpcap_select::{Action, Key, Program, Selection};

use super::both::{Both, CLUSTER, events};

pub(crate) static KEYS: [Key; 5] = [
    Key::Packet,
    Key::Flow,
    Key::RoundRobin,
    Key::Identification,
    Key::Sequence,
];

pub(crate) fn program(key: Key, initial: u32) -> Program {
    Program {
        selection: Selection { key, initial },
        cluster: CLUSTER,
        action: Action::Pass,
        lanes: Lanes::for_queues(1),
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn kernel_and_user_space_select_the_same() {
    const PACKETS: usize = 5000;
    let packets = std::env::var("FANPCAP_PROOF_PACKETS");
    let packets: usize = packets.map_or(100_000, |packets| packets.parse().unwrap());
    for key in KEYS {
        let mut verdicts = [0; 4];
        for seed in 0..u32::try_from(packets.div_ceil(PACKETS)).unwrap() {
            let mut program = program(key, 0x1234_5678_u32.wrapping_mul(seed + 1));
            program.lanes = match seed % 3 {
                0 => Lanes::for_queues(1),
                1 => Lanes::for_queues(4),
                _ => Lanes::SHARED,
            };
            let mut both = Both::new(Selector::load(&program, 0).unwrap(), &program);
            for event in events(seed.into(), PACKETS) {
                if let Err(difference) = both.happens(&event) {
                    panic!("{key:?}, seed {seed}: {event:02x?}: {difference}");
                }
            }
            if let Err(difference) = both.counters() {
                panic!("{key:?}, seed {seed}: {difference}");
            }
            for (sum, one) in verdicts.iter_mut().zip(both.verdicts) {
                *sum += one;
            }
        }
        let [idle, in_line, elsewhere, captured] = verdicts;
        println!("{key:?}: {idle} idle, {in_line} in-line, {elsewhere} elsewhere, {captured} own");
        assert!(idle > 0 && in_line > 100 && elsewhere > captured / 2 && captured > elsewhere / 2);
    }
}
