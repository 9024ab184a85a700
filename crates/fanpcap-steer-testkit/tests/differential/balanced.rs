//! The BPF program of a balanced group. It must steer as the BPF program of any other group. It
//! must also count each packet that it steers by a hash, for the hash's bucket.

use fanpcap_buckets::layout::{BUCKETS, bucket};
use fanpcap_steer::ebpf;
use fanpcap_steer::modes;
use fanpcap_steer::native::{Decision, Evaluator, Packet};
use fanpcap_steer::parts::Parts;
use fanpcap_steer::{Balance, GroupOptions};

use super::case::is_fragment;
use super::group::Group;
use super::recording::Recording;
use super::traffic::drawn;
use super::workers::pinned;
use super::written::compiled;

const OPTIONS: [GroupOptions; 2] = [
    GroupOptions::balanced(Balance::Idle),
    GroupOptions {
        flows: Some(65_536),
        balance: Some(Balance::Idle),
    },
];

#[test]
#[ignore = "needs root: eBPF"]
fn packets_go_where_they_did_and_their_buckets_count_them() {
    let sources = modes::MODES.iter().map(|mode| mode.1).chain([
        "main = tcp >-> steer_flow",
        "main = conditional is_udp (steer_to 2) steer_flow",
        "main = steer_to 3",
    ]);
    let cpu = pinned();
    let mut shots = drawn(1 << 33, 1000).shots;
    shots.retain(|shot| !is_fragment(&shot.frame()));
    for (source, options) in sources.flat_map(|it| OPTIONS.map(|options| (it, options))) {
        let table = Group(1).table();
        let parts = Parts::of(&compiled(source)).unwrap();
        let object = ebpf::fanout_with(&parts, options).unwrap();
        let loaded = table.load(&object, "balanced").unwrap();
        let mut evaluator = Evaluator::of_group(parts.steering());
        let mut counts = vec![0; BUCKETS];
        for shot in &shots {
            // Skip packets that BPF_PROG_TEST_RUN refuses.
            let Ok(slot) = loaded.run_marked(&shot.bytes, shot.mark) else {
                continue;
            };
            let decision = evaluator.decide(&Packet {
                cpu,
                mark: Some(shot.mark),
                ..Packet::of(shot.frame())
            });
            assert_eq!(slot, table.returns(decision), "{source}: {shot}");
            if let Decision::Steer(hash) = decision {
                counts[bucket(hash)] += 1;
            }
        }
        assert_eq!(table.loads(), counts, "{source}, {options:?}");
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn at_xdp_both_buckets_of_a_packet_for_two_members_count_it() {
    let cpu = pinned();
    let mut shots = drawn(1 << 34, 1000).shots;
    shots.retain(|shot| !is_fragment(&shot.frame()));
    for source in ["main = steer_flow", "main = double_steer_ip"] {
        let table = Group(1).table();
        let tree = compiled(source);
        let delivery = Recording { sent: false };
        let object = ebpf::xdp(&tree, OPTIONS[0], &delivery).unwrap();
        let loaded = table.load(&object, "balanced").unwrap();
        let mut evaluator = Evaluator::of_group(&tree);
        let mut counts = vec![0; BUCKETS];
        for shot in &shots {
            let Ok(host) = loaded.run(&shot.bytes) else {
                continue;
            };
            let outcome = evaluator.evaluate(&Packet {
                cpu,
                ..Packet::of(shot.frame())
            });
            assert_eq!(table.recorded(host), table.delivers(&outcome), "{source}");
            match outcome.decision {
                Decision::Steer(hash) => counts[bucket(hash)] += 1,
                Decision::Double(one, other) => {
                    counts[bucket(one)] += 1;
                    counts[bucket(other)] += 1;
                }
                Decision::Member(_) | Decision::Copy | Decision::Broadcast | Decision::Drop => {}
            }
        }
        assert!(counts.iter().any(|&count| count > 1), "{source}");
        assert_eq!(table.loads(), counts, "{source}");
    }
}
