//! Packets that the host sends. The BPF program at the device's traffic control must decide on them
//! as the BPF program at XDP decides on received packets.

use fanpcap_linux::bpf::Loaded;
use fanpcap_steer::GroupOptions;
use fanpcap_steer::ebpf;
use fanpcap_steer::ir::{Function, Steer, Tree};
use fanpcap_steer::native::{Evaluator, Packet};

use super::case::{Case, classifies};
use super::generated;
use super::recording::Recording;
use super::tree;
use super::workers::pinned;

/// Number of programs, unless FANPCAP_PROOF_SENT sets another number.
const PROGRAMS: u64 = 150;

/// Replaces steering at random by steering by the CPU, because random numbers differ in each run.
fn repeatable(mut program: Tree) -> Tree {
    tree::each(&mut program.main, &mut |function| {
        if *function == Function::Steer(Steer::Random) {
            *function = Function::Steer(Steer::Cpu);
        }
    });
    program
}

#[test]
#[ignore = "needs root: eBPF"]
fn sent_packets_are_steered_as_received_ones() {
    let programs = std::env::var("FANPCAP_PROOF_SENT");
    let programs = programs.map_or(PROGRAMS, |programs| programs.parse().unwrap());
    let cpu = pinned();
    let (mut trials, mut refused) = (0, 0);
    for seed in 0..programs {
        let Case {
            program,
            shots,
            group,
            ..
        } = generated::case(seed);
        let program = repeatable(program);
        let table = if classifies(&program) {
            group.table_with_classes()
        } else {
            group.table()
        };
        let Ok(object) = ebpf::xdp(&program, GroupOptions::default(), &Recording { sent: true })
        else {
            refused += 1;
            continue;
        };
        let loaded: Loaded = table
            .load(&object, "sent")
            .unwrap_or_else(|error| panic!("{seed}: {error}"));
        let mut evaluator = Evaluator::of_group(&program);
        for shot in shots.iter().filter(|shot| shot.untried(true).is_none()) {
            let host = loaded.run_marked(&shot.bytes, shot.mark).unwrap();
            let outcome = evaluator.evaluate(&Packet {
                cpu,
                mark: Some(shot.mark),
                ..Packet::of(shot.frame())
            });
            let (found, expected) = (table.recorded(host), table.delivers(&outcome));
            assert_eq!(found, expected, "{seed}, {outcome:?}: {shot}\n{program:#?}");
            trials += 1;
        }
    }
    println!("{programs} programs, {refused} refused: {trials} trials");
    assert!(refused < programs / 20 && trials > programs * 300);
}
