//! Packets of several of DPDK's buffers, among others.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../scene/clients.rs"]
mod clients;
#[path = "../scene/mod.rs"]
mod scene;

use clients::{Client, Poller, Wire, await_all, await_shares, hello, send};
use fanpcap_testkit::Direction;
use fanpcap_testkit::traffic::{self, Frame, sequence_of};
use std::collections::BTreeMap;
use std::slice;

/// Buffers have 2048 bytes. The longest frame takes five of them.
const LENS: [usize; 8] = [60, 9000, 1960, 2048, 2049, 4100, 6000, 64];

fn frames(count: u64) -> Vec<Frame> {
    let flows = traffic::flows(5, 40);
    let frame = |number: u64| {
        let at = usize::try_from(number).unwrap();
        let len = LENS[(at / flows.len() + at) % LENS.len()];
        traffic::frame(flows[at % flows.len()], Direction::Request, number, len).unwrap()
    };
    (0..count).map(frame).collect()
}

#[test]
fn members_share_packets_of_several_buffers_and_get_all_their_bytes() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let mut members: Vec<Client> = (0..3).map(|_| poller.member(&hello())).collect();
    await_shares(&poller, 3);
    let all = frames(1600);
    // A pool has room for a part of them.
    for some in all.chunks(200) {
        send(&wire, some);
        let end = some.last().unwrap().sequence + 1;
        fanpcap_testkit::await_for::await_so("these packets", || {
            members.iter_mut().for_each(Client::read);
            members.iter().map(|it| it.got.len()).sum::<usize>() as u64 == end
        });
    }
    await_all(&mut members, &all);
    let got = members.iter().flat_map(|it| &it.got);
    let got: BTreeMap<u64, &Vec<u8>> = got.map(|it| (sequence_of(it).unwrap(), it)).collect();
    for frame in &all {
        assert!(*got[&frame.sequence] == frame.bytes, "{}", frame.sequence);
    }
    let counts = poller.counts(Some(5)).unwrap();
    assert_eq!((counts.produced, counts.dropped), (1600, 0));
}
