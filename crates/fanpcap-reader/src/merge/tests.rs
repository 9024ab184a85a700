//! Tests with packets that the kernel hands over while the reader decides which packet comes next.

#[allow(
    unsafe_code,
    clippy::cast_possible_truncation,
    reason = "the kernel's side of the ring"
)]
#[path = "../../../fanpcap-ring/tests/kernel/mod.rs"]
mod kernel;

use super::{Call, Control, Lane, Merge, Packet};
use crate::accept::{Direction, Options};
use crate::port::Port;
use crate::quiet::Quiet;
use fanpcap_linux::packet::ring::Mapping;
use fanpcap_ring::{Blocks, Ring};
use kernel::{BLOCK, Memory};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

fn packet(microseconds: u32) -> kernel::Packet {
    kernel::Packet {
        data: vec![0; 60],
        cut: 0,
        seconds: 7,
        nanoseconds: microseconds * 1000,
        vlan: None,
        pkttype: 0,
        ifindex: 2,
        reserve: 32,
    }
}

thread_local! {
    /// The ring into which the kernel puts a packet before the reader reads the clock.
    static LATE: RefCell<Option<Memory>> = const { RefCell::new(None) };
}

/// Returns 7.5 seconds. Before the return, the kernel hands over a packet, as if the thread had
/// lost its CPU.
fn clock() -> Duration {
    if let Some(memory) = LATE.take() {
        memory.put_numbered_block(0, 1, &[packet(100)]);
    }
    Duration::from_millis(7500)
}

/// The kernel may hand over a packet after the reader has checked a lane and before it reads the
/// clock. By the clock, all earlier packets have come, but the reader has not found this packet.
#[test]
fn a_packet_that_comes_before_the_clock_is_read_is_in_order() {
    let options = Options {
        snaplen: 65_535,
        nanoseconds: false,
        nonblocking: false,
        direction: Direction::InOut,
        tag_at: None,
    };
    let timeout = Some(Duration::from_millis(10));
    let mappings = [(); 2].map(|()| Mapping::anonymous(8 * BLOCK).unwrap());
    let [late, early] = mappings.each_ref().map(Memory::of);
    let lanes = mappings.map(|mapping| {
        let ring = Ring::V3(Blocks::new(mapping, BLOCK, 8).unwrap());
        Lane::new(ring, timeout)
    });
    let port = || Arc::new(Quiet::new(true)) as Arc<dyn Port>;
    let control = Control::new(vec![port(), port()], timeout, &options).unwrap();
    let mut merge = Merge::new(lanes.into(), timeout);
    merge.clock = clock;
    early.put_numbered_block(0, 1, &[packet(200)]);
    LATE.set(Some(late));
    let (mut call, mut got) = (Call::new(-1), Packet::NONE);
    let times = [(); 2].map(|()| {
        merge.next(&control, &mut call, &mut got).unwrap();
        got.fraction
    });
    assert_eq!(times, [100, 200]);
}
