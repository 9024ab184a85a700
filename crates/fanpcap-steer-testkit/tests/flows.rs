//! Conversations that the test knows, in each encapsulation. The mode `flow` must give both
//! directions of each flow to one member, in the evaluator and in the kernel.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};

use fanpcap_buckets::layout::{BUCKETS, bucket};
use fanpcap_linux::bpf::Loaded;
use fanpcap_steer::native::{Decision, Evaluator, Packet};
use fanpcap_steer::parts::Parts;
use fanpcap_steer::{ebpf, modes, tree};
use fanpcap_steer_testkit::flows::{ALL, Encapsulation, FLOWS, Talk, talks};
use fanpcap_wire::{Frame, Layers};

/// A function that returns the hash by which it would steer a frame.
type Decide<'d> = Box<dyn FnMut(&[u8]) -> u32 + 'd>;

fn flow() -> fanpcap_steer::ir::Tree {
    tree(modes::source("flow").unwrap(), &|_| Ok(vec![])).unwrap()
}

fn native() -> Decide<'static> {
    let mut evaluator = Evaluator::of_group(&flow());
    Box::new(move |bytes| {
        let packet = Packet::of(Frame { bytes, tag: None });
        let decision = evaluator.decide(&packet);
        let Decision::Steer(hash) = decision else {
            panic!("{decision:?}");
        };
        hash
    })
}

/// The functions that decide in the kernel: one at a packet socket, one at XDP.
fn kernel() -> [Decide<'static>; 2] {
    let program = flow();
    let socket = ebpf::fanout_without_table(&Parts::of(&program).unwrap()).unwrap();
    [socket, ebpf::xdp_decision(&program).unwrap()].map(|object| -> Decide<'static> {
        let loaded = Loaded::load(&object, "flows").unwrap();
        Box::new(move |frame| loaded.run(frame).unwrap())
    })
}

/// The members that got the packets of each flow and direction.
#[derive(Debug, Default, PartialEq, Eq)]
struct Places {
    /// Flows of which one direction went to several members.
    split: usize,
    /// Flows whose two directions went to different members.
    apart: usize,
    /// Members that got packets.
    members: usize,
}

fn places(hashes: &[(Talk, u32)], members: usize) -> Places {
    let mut at = BTreeMap::<_, BTreeSet<usize>>::new();
    for (talk, hash) in hashes {
        let member = bucket(*hash) * members / BUCKETS;
        at.entry((talk.flow, talk.is_answer))
            .or_default()
            .insert(member);
    }
    let both = |flow| [false, true].map(|is_answer| &at[&(flow, is_answer)]);
    Places {
        split: (0..FLOWS)
            .filter(|&flow| both(flow).iter().any(|it| it.len() > 1))
            .count(),
        apart: (0..FLOWS)
            .filter(|&flow| both(flow)[0] != both(flow)[1])
            .count(),
        members: at.values().flatten().collect::<BTreeSet<_>>().len(),
    }
}

fn hashes(by: &Encapsulation, decide: &mut Decide<'_>) -> Vec<(Talk, u32)> {
    let talks = talks().into_iter();
    talks
        .map(|talk| {
            let hash = decide(&(by.wrap)(&talk));
            (talk, hash)
        })
        .collect()
}

/// Whether each conversation has one hash, and each hash belongs to one conversation.
fn is_by_flow(hashes: &[(Talk, u32)]) -> bool {
    let of: BTreeSet<_> = hashes
        .iter()
        .map(|(talk, hash)| (talk.flow, hash))
        .collect();
    let distinct: BTreeSet<_> = hashes.iter().map(|(_, hash)| hash).collect();
    of.len() == FLOWS && distinct.len() == FLOWS
}

fn check(mut decide: Decide<'_>) {
    for by in ALL {
        let hashes = hashes(by, &mut decide);
        assert_eq!(is_by_flow(&hashes), by.is_read, "{}", by.name);
        for members in [2, 4, 7] {
            let found = places(&hashes, members);
            assert_eq!(found.split, 0, "{} of {members}: {found:?}", by.name);
            if by.is_read {
                let whole = Places {
                    members,
                    ..Places::default()
                };
                assert_eq!(found, whole, "{} of {members}", by.name);
            }
        }
    }
}

#[test]
fn flows_are_whole_in_every_encapsulation_that_is_read() {
    check(native());
}

#[test]
#[ignore = "needs root: eBPF"]
fn flows_are_whole_in_the_kernel() {
    kernel().into_iter().for_each(check);
}

#[test]
fn the_evaluator_and_the_kernel_are_told_the_same_of_padded_frames() {
    let mut decide = native();
    for by in ALL.iter().filter(|by| by.is_read) {
        for talk in talks().iter().take(FLOWS) {
            let frame = (by.wrap)(talk);
            let padded = [&frame[..], &[0; 18]].concat();
            assert_eq!(decide(&padded), decide(&frame), "{}", by.name);
        }
    }
}

#[test]
fn packets_that_are_not_read_are_told() {
    for by in ALL {
        for talk in talks().iter().take(FLOWS) {
            let bytes = &(by.wrap)(talk);
            let layers = Layers::of(&Frame { bytes, tag: None });
            assert_eq!(layers.unread().is_none(), by.is_read, "{}", by.name);
        }
    }
}

/// docs/steering.md must list each encapsulation that the mode `flow` does not read.
#[test]
fn what_is_not_read_is_documented() {
    let page = include_str!("../../../docs/steering.md");
    for by in ALL.iter().filter(|by| !by.is_read) {
        assert!(page.contains(&format!("| {} |", by.name)), "{}", by.name);
    }
}
