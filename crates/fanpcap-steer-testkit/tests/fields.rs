//! Checks that offsets of fields do not count the frame's outermost tag. It does not matter whether
//! the tag is in the frame's bytes or in the skb, so all engines read the same bytes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use fanpcap_linux::bpf::Loaded;
use fanpcap_steer::ir::Tree;
use fanpcap_steer::native::{Decision, Evaluator, Packet};
use fanpcap_steer::parts::Parts;
use fanpcap_steer::{ebpf, tree};
use fanpcap_testkit::frames;
use fanpcap_wire::{Frame, Tag};

const PROGRAMS: [&str; 9] = [
    "steer_field 0 4",
    "steer_field 8 4",
    "steer_field 9 4",
    "steer_field 10 4",
    "steer_field 12 2",
    "steer_field 26 4",
    "steer_field_symmetric 26 30 4",
    "steer_field_symmetric 11 26 3",
    "steer_field 65535 1",
];

fn compiled(source: &str) -> Tree {
    tree(source, &|_| Ok(vec![])).unwrap()
}

fn untagged() -> Vec<u8> {
    frames::ethernet(
        0x0800,
        &frames::v4(17, 0, &frames::udp(1111, 2222, &[7; 22])),
    )
}

/// Frames with different tags. For each frame, whether the kernel removes the first tag from the
/// frame.
fn tagged() -> [(Vec<u8>, bool); 5] {
    let with = |tags: &[u8]| {
        let plain = untagged();
        [&plain[..12], tags, &plain[12..]].concat()
    };
    [
        (with(&[]), false),
        (with(&[0x81, 0, 0, 5]), true),
        (with(&[0x88, 0xa8, 0, 5]), true),
        (with(&[0x91, 0, 0, 5]), false),
        (with(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6]), true),
    ]
}

/// The frame as a packet socket's BPF program reads it.
fn as_received((frame, is_taken_out): &(Vec<u8>, bool)) -> Vec<u8> {
    let mut frame = frame.clone();
    if *is_taken_out {
        frame.drain(12..16);
    }
    frame
}

fn native(source: &str, bytes: &[u8], tag: Option<Tag>) -> Decision {
    let packet = Packet::of(Frame { bytes, tag });
    Evaluator::of_group(&compiled(source)).decide(&packet)
}

/// The evaluator's decision on the frame as a packet socket gets it: if the kernel removes the
/// first tag, the tag is in [`Frame::tag`] and not in the bytes.
fn on_a_socket(source: &str, one: &(Vec<u8>, bool)) -> Decision {
    let tag = one.1.then_some(Tag {
        tpid: 0x8100,
        tci: 5,
    });
    native(source, &as_received(one), tag)
}

#[test]
fn a_tag_in_the_frame_counts_as_little_as_one_beside_it() {
    let double = "double_steer_field 10 26 4";
    for source in PROGRAMS.into_iter().chain([double]) {
        for one in &tagged() {
            let beside = on_a_socket(source, one);
            assert_eq!(native(source, &one.0, None), beside, "{source}: {one:x?}");
        }
    }
    let one_tag = &tagged()[1];
    let plain = native("steer_field 26 4", &untagged(), None);
    assert_eq!(native("steer_field 26 4", &one_tag.0, None), plain);
}

#[test]
#[ignore = "needs root: eBPF"]
fn the_kernel_sees_the_same_bytes_at_both_hooks() {
    for source in PROGRAMS {
        let program = compiled(source);
        let socket = ebpf::fanout_without_table(&Parts::of(&program).unwrap()).unwrap();
        let device = ebpf::xdp_decision(&program).unwrap();
        let [socket, device] = [socket, device].map(|it| Loaded::load(&it, "fields").unwrap());
        for one in &tagged() {
            // A group's BPF program can't drop.
            let mut expected = (0, u32::MAX);
            if let Decision::Steer(hash) = on_a_socket(source, one) {
                expected = (hash, hash);
            }
            let (on_socket, at_device) = expected;
            assert_eq!(device.run(&one.0).unwrap(), at_device, "{source}: {one:x?}");
            assert_eq!(socket.run(&one.0).unwrap(), on_socket, "{source}: {one:x?}");
        }
    }
}
