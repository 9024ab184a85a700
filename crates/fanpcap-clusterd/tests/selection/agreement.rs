//! Compares the selection in the kernel with the selection in user space, for random packets,
//! tables and coordinators' frames, with each selection key.

use std::sync::mpsc::{self, TryRecvError};
use std::thread;

use fanpcap_clusterd::selector::Selector;
use fanpcap_select::layout::Lanes;
use fanpcap_select::{Action, Claim, Claims, Filter, Key, Program, Selection};
use fanpcap_testkit::frames;

use super::both::{Both, CLUSTER, elsewhere, events};

pub(crate) static KEYS: [Key; 4] = [Key::Packet, Key::Flow, Key::RoundRobin, Key::Identification];

pub(crate) fn program(key: Key, initial: u32) -> Program {
    Program {
        selection: Selection { key, initial },
        cluster: CLUSTER,
        action: Action::Pass,
        lanes: Lanes::for_queues(1),
        filter: None,
    }
}

/// A filter that about half of the random packets pass.
fn filter() -> Filter {
    let text = "ip or (vlan and udp)".to_owned();
    let code = fanpcap_pcap::compile_expression(&text).unwrap();
    Filter { text, code }
}

/// Runs one packet so often that counters of 16 bits wrap, while another thread reads them.
fn count_one_bucket(lanes: Lanes) {
    const TRIALS: u32 = 40;
    const PACKETS: u32 = 9_973;
    let program = Program {
        lanes,
        ..program(Key::Packet, 3)
    };
    let selector = Selector::load(&program, None).unwrap();
    selector.switch(&Claims::new(|_| Claim::Mine), 1);
    let packet = frames::ethernet(0x0800, &frames::v4(17, 0, &frames::udp(1, 2, &[9; 18])));
    let sum = || {
        let counts = selector.counts();
        assert_eq!(elsewhere(&counts), 0);
        counts.captured.iter().sum::<u64>()
    };
    thread::scope(|scope| {
        // The thread below runs until `_running` is dropped: at the test's end, also after a panic.
        let (_running, ended) = mpsc::channel::<()>();
        scope.spawn({
            let selector = &selector;
            move || {
                let mut last = 0;
                while ended.try_recv() == Err(TryRecvError::Empty) {
                    let now = selector.counts().seen.iter().sum();
                    let most = u64::from(TRIALS * PACKETS);
                    assert!((last..=most).contains(&now), "{now} after {last}");
                    last = now;
                }
            }
        });
        for trial in 1..=TRIALS {
            if trial == TRIALS / 2 {
                selector.switch(&Claims::new(|_| Claim::Shared), 2);
            }
            selector.program().run(&packet, &[], PACKETS).unwrap();
            assert_eq!(sum(), u64::from(trial * PACKETS));
        }
    });
}

#[test]
#[ignore = "needs root: eBPF"]
fn counters_that_begin_anew_lose_nothing() {
    count_one_bucket(Lanes::for_queues(1));
    count_one_bucket(Lanes::for_queues(64));
    count_one_bucket(Lanes::SHARED);
}

#[test]
#[ignore = "needs root: eBPF"]
fn kernel_and_user_space_select_the_same() {
    const PACKETS: usize = 5000;
    let packets = std::env::var("FANPCAP_PROOF_PACKETS");
    let packets: usize = packets.map_or(100_000, |packets| packets.parse().unwrap());
    for key in KEYS {
        let mut verdicts = [0; 5];
        for seed in 0..u32::try_from(packets.div_ceil(PACKETS)).unwrap() {
            let mut program = program(key, 0x1234_5678_u32.wrapping_mul(seed + 1));
            let is_several = seed / 2 % 4 == 3;
            program.lanes = match seed / 2 % 4 {
                0 => Lanes::for_queues(1),
                1 => Lanes::for_queues(4),
                2 => Lanes::SHARED,
                _ => Lanes::of_devices(&[2, 2])[1],
            };
            program.filter = (seed % 2 == 1).then(filter);
            let mut both = Both::new(Selector::load(&program, None).unwrap(), &program);
            if is_several {
                both.native.several_devices();
            }
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
        let [idle, in_line, elsewhere, captured, filtered] = verdicts;
        println!("{key:?}: {idle} idle, {in_line} in-line, {elsewhere} elsewhere, {captured} own");
        println!("{key:?}: {filtered} filtered");
        assert!(idle > 0 && in_line > 100 && filtered > 1000 && captured > filtered);
        let own = captured + filtered;
        assert!(elsewhere > own / 2 && own > elsewhere / 2);
    }
}
