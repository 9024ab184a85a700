//! Compares the BPF program of a sticky group with a model of it, while buckets move, and members
//! join, leave and get other slots.

use fanpcap_steer::GroupOptions;
use fanpcap_steer::ebpf;
use fanpcap_steer::modes;
use fanpcap_steer::native::{Decision, Evaluator, Flows, Packet};
use fanpcap_steer::parts::Parts;
use fanpcap_testkit::frames;

use super::case::is_fragment;
use super::group::{Group, Table};
use super::recording::Recording;
use super::traffic::{Shot, drawn};
use super::workers::pinned;
use super::written::compiled;

/// Number of flows that the BPF program remembers by default.
const FLOWS: u32 = 65_536;

/// The BPF program of a sticky group, and its model: an evaluator and the remembered flows.
struct Sticky {
    loaded: fanpcap_linux::bpf::Loaded,
    evaluator: Evaluator,
    flows: Flows,
    cpu: u32,
}

/// The slots of all packets that were not dropped, in order.
#[derive(Default, PartialEq, Eq)]
struct Slots(Vec<u32>);

impl Sticky {
    fn new(source: &str, table: &Table, flows: u32) -> Self {
        let parts = Parts::of(&compiled(source)).unwrap();
        let object = ebpf::fanout_with(&parts, GroupOptions::sticky(flows)).unwrap();
        let loaded = table.load(&object, "sticky");
        Self {
            loaded: loaded.unwrap_or_else(|error| panic!("{source}: {error}")),
            evaluator: Evaluator::of_group(parts.steering()),
            flows: Flows::default(),
            cpu: pinned(),
        }
    }

    /// Runs all packets, and checks that the kernel and the model return the same slots. Returns
    /// these slots, and the number of packets whose slot differs from the slot of their bucket in
    /// the table.
    fn run(&mut self, shots: &[Shot], table: &Table) -> (Slots, usize) {
        let (mut slots, mut kept) = (Slots::default(), 0);
        for (number, shot) in shots.iter().enumerate() {
            // Skip packets that BPF_PROG_TEST_RUN refuses.
            let Ok(slot) = self.loaded.run_marked(&shot.bytes, shot.mark) else {
                continue;
            };
            let decision = self.evaluator.decide(&Packet {
                cpu: self.cpu,
                mark: Some(shot.mark),
                ..Packet::of(shot.frame())
            });
            let expected = table.sticks(&mut self.flows, decision);
            assert_eq!(slot, expected, "packet {number}, {decision:?}: {shot}");
            // A packet that is dropped belongs to no flow.
            slots.0.extend((decision != Decision::Drop).then_some(slot));
            kept += usize::from(slot != table.returns(decision));
        }
        assert!(slots.0.len() > shots.len() / 4);
        (slots, kept)
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn flows_keep_their_member_and_follow_the_table_when_it_is_gone() {
    let sources = modes::MODES.iter().map(|mode| mode.1).chain([
        "main = tcp >-> steer_flow",
        "main = conditional is_udp steer_rrobin steer_flow",
        "main = par3 (udp >-> steer_to 3) steer_flow steer_link",
        "main = steer_rss",
        "main = steer_link",
    ]);
    // Leave out fragments, because their member depends on earlier fragments.
    let mut shots = drawn(1 << 32, 2000).shots;
    shots.retain(|shot| !is_fragment(&shot.frame()));
    for source in sources {
        let mut table = Group(1).table();
        let mut sticky = Sticky::new(source, &table, FLOWS);
        let (first, kept) = sticky.run(&shots, &table);
        assert_eq!(kept, 0, "{source}");
        // All buckets move, but no flow moves.
        table.draw_owners(1);
        let (second, kept) = sticky.run(&shots, &table);
        assert!(kept > 100, "{source}: {kept}");
        let has_turns = source.contains("rrobin");
        assert!(first == second || has_turns, "{source}");
        // Members get other slots, but keep their flows.
        let moved = |slot: u8| Some((slot.wrapping_sub(7).into(), !slot.wrapping_sub(7)));
        table.sticky_id(moved);
        let (third, _) = sticky.run(&shots, &table);
        let differing = first
            .0
            .iter()
            .zip(&third.0)
            .filter(|(one, other)| one != other);
        assert!(differing.count() > 100, "{source}");
        // A third of the members is gone. Half of the gone members have a successor with the same
        // number and another stamp.
        table.sticky_id(|slot| match slot % 6 {
            0 => None,
            1 => Some((1000, !slot.wrapping_sub(7))),
            _ => moved(slot),
        });
        let (_, kept) = sticky.run(&shots, &table);
        assert!(kept > 50, "{source}: {kept}");
        table.draw_owners(2);
        sticky.run(&shots, &table);
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn flows_that_are_forgotten_follow_the_table() {
    const FLOWS: u32 = 1024;
    let mut table = Group(1).table();
    let mut sticky = Sticky::new(modes::source("flow").unwrap(), &table, FLOWS);
    let shots = (0..8192_u16).map(|port| {
        let datagram = frames::udp(port, 53, &[0; 22]);
        let bytes = frames::ethernet(0x0800, &frames::v4(17, 0x4000, &datagram));
        Shot { bytes, mark: 0 }
    });
    let shots: Vec<Shot> = shots.collect();
    let slots = |shots: &[Shot]| -> Vec<u32> {
        let slot = |shot: &Shot| sticky.loaded.run(&shot.bytes).unwrap();
        shots.iter().map(slot).collect()
    };
    let before = slots(&shots);
    table.draw_owners(1);
    let after = slots(&shots);
    let by_table: Vec<u32> = shots
        .iter()
        .map(|shot| table.returns(sticky.evaluator.decide(&Packet::of(shot.frame()))))
        .collect();
    let mut kept = 0;
    for ((before, after), by_table) in before.into_iter().zip(after).zip(by_table) {
        assert!(after == before || after == by_table);
        kept += u32::from(after != by_table);
    }
    assert!(kept <= FLOWS, "{kept}");
    // The BPF program remembers the last flows, if they are far fewer than the map can hold.
    let few = &shots[..256];
    let before = slots(few);
    table.draw_owners(2);
    assert!(slots(few) == before);
}

/// A flow may have packets of several classes. The BPF program remembers the flow separately for
/// each class.
#[test]
#[ignore = "needs root: eBPF"]
fn at_xdp_a_flow_has_a_member_in_each_class() {
    const SMALL: usize = 22;
    let source = "main = do\n  when (udp_len .> 40) (classify 1)\n  steer_flow";
    let tree = compiled(source);
    let object = ebpf::xdp(
        &tree,
        GroupOptions::sticky(FLOWS),
        &Recording { sent: false },
    )
    .unwrap();
    // With the seeds 1 and 4, class 1 has no members.
    for seed in [0, 1, 2, 4, 5] {
        let mut table = Group(seed).table_with_classes();
        let loaded = table.load(&object, "sticky").unwrap();
        let mut evaluator = Evaluator::of_group(&tree);
        let shots = (0..200_u16).flat_map(|port| [SMALL, 100].map(|len| (port, len)));
        let shots = shots.map(|(port, len)| {
            let datagram = frames::udp(port, 53, &vec![0; len]);
            let bytes = frames::ethernet(0x0800, &frames::v4(17, 0x4000, &datagram));
            Shot { bytes, mark: 0 }
        });
        let shots: Vec<Shot> = shots.collect();
        let mut run = |table: &Table| {
            let one = |shot: &Shot| {
                let host = loaded.run(&shot.bytes).unwrap();
                let outcome = evaluator.evaluate(&Packet::of(shot.frame()));
                (table.recorded(host), table.delivers(&outcome))
            };
            shots.iter().map(one).collect::<Vec<_>>()
        };
        let before = run(&table);
        assert!(before.iter().all(|(done, expected)| done == expected));
        // The buckets of the default class move, but no flow moves. The buckets of the other class
        // stay.
        table.draw_owners_at_xdp(1);
        let after = run(&table);
        let same = before.iter().zip(&after);
        assert!(same.clone().all(|((was, _), (is, _))| was == is), "{seed}");
        let moved = after.iter().filter(|(done, by_table)| done != by_table);
        assert!(moved.count() > 100, "{seed}");
    }
}
