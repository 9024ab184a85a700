//! Checks that all variants of the code give the same answer for frames that are cut off or broken.
//! There are four variants: code for sockets and for XDP, each with and without separate code for
//! plain packets.

use super::frames::*;
use super::limits::{predicates, sets, steers};
use super::*;
use crate::ir::{Key, Property};

/// Frames of all kinds, in two forms: cut off at every third byte, or with one bit changed in every
/// second byte of the headers.
fn broken() -> Vec<Vec<u8>> {
    let extension = |next: u8, rest: &[u8]| [&[next, 0, 0, 0, 0, 0, 0, 0][..], rest].concat();
    let datagram = udp(1111, 2222, &[0x80; 16]);
    let mut whole = vec![
        udp4(),
        tcp4(),
        udp6(),
        arp(),
        ethernet(0x86dd, &v6(6, &tcp(1, 2))),
        ethernet(0x86dd, &v6(0, &extension(44, &extension(17, &datagram)))),
        ethernet(0x0800, &v4_with(&[1; 4], 17, 0x4000, &datagram)),
        ethernet(
            0x0800,
            &v4(
                1,
                0,
                &[&[3, 0, 0, 0, 0, 0, 0, 0][..], &udp4()[14..]].concat(),
            ),
        ),
        ethernet(0x8100, &tag(5, 0x88a8, &tag(6, 0x0800, &udp4()[14..]))),
    ];
    whole.extend(tunnels().into_iter().map(|(_, frame)| frame));
    let mut all = Vec::new();
    for frame in whole {
        all.extend(
            (14..=frame.len())
                .step_by(3)
                .map(|end| frame[..end].to_vec()),
        );
        for at in (12..frame.len().min(64)).step_by(2) {
            let mut other = frame.clone();
            other[at] ^= 1 << (at / 2 % 8);
            all.push(other);
        }
    }
    all
}

#[test]
#[ignore = "needs root: eBPF"]
fn all_ways_come_to_the_same() {
    let frames = broken();
    let asked = predicates()
        .into_iter()
        .filter(|predicate| !is_of_the_hook(predicate));
    let mut programs: Vec<_> = asked.map(choice).collect();
    let key = (0..13).map(|bit| Function::Steer(Steer::Key(Key(1 << bit))));
    programs.extend(
        steers()
            .into_iter()
            .filter(|steer| !is_by_chance(steer))
            .chain(key),
    );
    let mut ran = 0;
    for main in programs {
        for main in [main.clone(), inner(main)] {
            let all = All::of(&Tree {
                main,
                sets: sets(),
                filters: Vec::new(),
            });
            for frame in &frames {
                ran += usize::from(all.answer(frame).is_some());
            }
        }
    }
    println!("{} frames, {ran} runs", frames.len());
}

/// Whether the predicate reads metadata that a frame at XDP lacks.
fn is_of_the_hook(predicate: &Predicate) -> bool {
    matches!(
        predicate,
        Predicate::Compare(Property::Mark | Property::Queue, ..)
    )
}

fn is_by_chance(steer: &Function) -> bool {
    matches!(
        steer,
        Function::Steer(Steer::RoundRobin | Steer::Random | Steer::Cpu)
    )
}
