//! Checks that the kernel and the evaluator forget the datagram of fragments after two seconds.

use std::cell::Cell;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fanpcap_steer::native::Packet;
use fanpcap_testkit::frames;
use fanpcap_wire::Frame;

use super::case::check;
use super::group::Group;
use super::recording::Record;
use super::seed::Seed;
use super::side::{Clock, Hook, Side};
use super::traffic::Shot;
use super::workers::pinned;
use super::written::{case, compiled};

/// A fragment of a datagram, with this field of flags and offset.
fn fragment(field: u16) -> Shot {
    Shot {
        bytes: frames::ethernet(0x0800, &frames::v4(17, field, &frames::udp(1, 2, &[0; 8]))),
        mark: 0,
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn a_datagram_is_forgotten_after_two_seconds() {
    let (first, later) = (fragment(0x2000), fragment(185));
    let program = compiled("steer_flow");
    let (group, begin) = (Group(0), Instant::now());
    let table = group.table();
    for hook in [Hook::Fanout, Hook::Xdp] {
        let mut side = Side::new(hook, &program, (&table, Clock::Runs), &Seed::None).unwrap();
        let mut go = |shot: &Shot| {
            let frame = Frame {
                bytes: &shot.bytes,
                tag: None,
            };
            let now_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap();
            let packet = Packet {
                now_ns,
                ..Packet::of(frame)
            };
            let answers = side.run(shot, packet).unwrap();
            assert_eq!(side.difference(&answers), None);
            let [(_, late), native] = side.state().unwrap();
            assert_eq!(late, native.1);
            let delivered = |record: Record| record.slots.keys().copied().map(u32::from).sum();
            (answers.record.map_or(answers.kernel, delivered), late)
        };
        let (slot, _) = go(&first);
        assert_eq!(go(&later), (slot, 0));
        sleep(Duration::from_millis(500));
        assert_eq!(go(&later), (slot, 0));
        sleep(Duration::from_millis(1600));
        let (alone, late) = go(&later);
        assert!(alone != slot && late == 1);
        assert_eq!(
            go(&first),
            (alone, 1),
            "the first fragment follows the earlier fragments"
        );
        assert_eq!(
            go(&first),
            (slot, 1),
            "the first fragment follows only once"
        );
    }
}

/// On a busy machine the thread may lose its CPU at any packet, for seconds.
#[test]
#[ignore = "needs root: eBPF"]
fn a_pause_between_evaluator_and_kernel_makes_no_difference() {
    let shots = [0x2000, 185, 370].map(fragment);
    let case = case("steer_flow", &shots);
    let packets = Cell::new(0);
    // The second packet pauses, after its time was taken, before the kernel gets it.
    let pause = |_: &mut Vec<u8>| {
        if packets.replace(packets.get() + 1) == 3 {
            sleep(Duration::from_millis(2100));
        }
    };
    let outcome = check(&case, pinned(), &Seed::Packet(&pause)).map_err(|it| it.what);
    assert_eq!(outcome.unwrap().trials, [3; 3]);
}
