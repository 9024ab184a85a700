//! Packets of a source in ordinary memory come to the pools of the members that the steering
//! programs choose, and each packet is counted once.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod scene;
#[path = "fan_out/filtered.rs"]
mod filtered;
#[path = "fan_out/users.rs"]
mod users;

use fanpcap_buckets::layout::{BUCKETS, EVERYBODY, LOADS, SLOTS, bucket};
use fanpcap_poll::{PoolFile, PoolKind};
use fanpcap_poller::{BURST, FanOut, GroupCounts, MemberSlot, NewGroup, Packet, Wants};
use fanpcap_ring::{Layout as _, Pool};
use fanpcap_steer::native::{Decision, Evaluator, Table};
use fanpcap_steer::{Balance, GroupOptions};
use fanpcap_testkit::frames::{ethernet, udp, v4};
use fanpcap_testkit::traffic::{self, Frame, sequence_of};
use fanpcap_wire::Tag;
use proptest::prelude::*;
use scene::{ALL, Fake, SIZE_OF_POOL, admit, drain, group, poll_all, share, table};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};

const FLOW: &str = "main = par3 (inner steer_flow) steer_link (steer_to 0)";

fn of_group(slot: u8) -> MemberSlot {
    MemberSlot { group: 3, slot }
}

fn frames(count: u64) -> Vec<Frame> {
    traffic::frames(7, &traffic::flows(5, 40), 0..count).unwrap()
}

fn source(frames: &[Frame]) -> Fake<'_> {
    Fake::new(frames.iter().map(|it| &it.bytes[..]))
}

/// The numbers of the frames in a pool.
fn numbers(pool: &mut Pool) -> Vec<u64> {
    let frames = drain(pool).into_iter();
    frames.map(|it| sequence_of(&it).unwrap()).collect()
}

/// A queue with a group whose members have these slots, and the members' readers.
fn scene(program: &str, slots: &[u8]) -> (FanOut, Vec<Pool>) {
    let table = table(false);
    share(&table, 0, slots);
    let mut fan_out = FanOut::new(0);
    assert!(fan_out.begin(3, group(program, &table)));
    let admit = |&slot: &u8| admit(&mut fan_out, of_group(slot), SIZE_OF_POOL);
    let pools = slots.iter().map(admit).collect();
    (fan_out, pools)
}

fn is_account_even(counts: GroupCounts) -> bool {
    let ends = [
        counts.no_time,
        counts.stopped,
        counts.nowhere,
        counts.no_member,
        counts.produced,
        counts.dropped,
        counts.unwanted,
        counts.not_allowed,
    ];
    let ends: u64 = ends.into_iter().sum();
    counts.offered + counts.again == ends
}

#[test]
fn each_packet_goes_to_the_owner_of_its_bucket_and_no_flow_is_split() {
    let slots = [0, 7, 200, 255];
    let (mut fan_out, mut pools) = scene(FLOW, &slots);
    let frames = frames(5000);
    let woken = poll_all(&mut fan_out, &mut source(&frames));
    assert_eq!(woken.len(), 4, "each reader is woken once: {woken:?}");
    let mut members: BTreeMap<u64, usize> = BTreeMap::new();
    for (index, pool) in pools.iter_mut().enumerate() {
        let numbers = numbers(pool);
        assert!(
            numbers.len() > 500 && numbers.is_sorted(),
            "the order of the wire"
        );
        members.extend(numbers.into_iter().map(|number| (number, index)));
    }
    assert!(members.keys().copied().eq(0..5000), "each once");
    let mut owners = BTreeMap::new();
    for frame in &frames {
        let owner = owners
            .entry(frame.flow.key())
            .or_insert(members[&frame.sequence]);
        assert_eq!(*owner, members[&frame.sequence], "a flow is split");
    }
    let counts = fan_out.counts(3).unwrap();
    assert_eq!((counts.offered, counts.produced), (5000, 5000));
    assert!(is_account_even(counts));
}

/// The evaluator's own tests compare this table with what BPF programs find.
#[test]
fn the_slot_is_that_of_the_tables_other_reader() {
    let slots = [4, 9, 2];
    for program in [
        FLOW,
        "main = steer_to 7",
        "main = steer_rrobin",
        "main = udp >-> steer_ip",
    ] {
        let (mut fan_out, mut pools) = scene(program, &slots);
        let frames = frames(600);
        poll_all(&mut fan_out, &mut source(&frames));
        let memory = table(false);
        share(&memory, 0, &slots);
        let buckets: Vec<u8> = memory.bytes()[..BUCKETS]
            .iter()
            .map(|it| it.load(Ordering::Relaxed))
            .collect();
        let reference = Table {
            buckets: buckets[..].try_into().unwrap(),
            ranks: &slots,
            sticky_ids: &[0; SLOTS],
            holders: &[0; SLOTS],
        };
        let NewGroup { mut steering, .. } = group(program, &memory);
        let mut expected = vec![Vec::new(); 3];
        for frame in &frames {
            let decision = steering.decide(&packet(&frame.bytes));
            if decision != Decision::Drop {
                let slot = reference.slot(decision);
                let member = slots.iter().position(|&it| it == slot).unwrap();
                expected[member].push(frame.sequence);
            }
        }
        let found: Vec<Vec<u64>> = pools.iter_mut().map(numbers).collect();
        assert_eq!(found, expected, "{program}");
        assert!(is_account_even(fan_out.counts(3).unwrap()), "{program}");
    }
}

fn packet(bytes: &[u8]) -> fanpcap_steer::native::Packet<'_> {
    fanpcap_steer::native::Packet {
        queue: Some(0),
        ..fanpcap_steer::native::Packet::of(Packet::of(bytes).frame)
    }
}

#[test]
fn copies_go_to_all_members_and_dropped_packets_to_none() {
    let (mut fan_out, mut pools) = scene("main = udp", &[1, 2, 3]);
    let frames = frames(400);
    poll_all(&mut fan_out, &mut source(&frames));
    let udp: Vec<u64> = frames
        .iter()
        .filter(|it| it.flow.transport == fanpcap_testkit::Transport::Udp)
        .map(|it| it.sequence)
        .collect();
    for pool in &mut pools {
        assert_eq!(numbers(pool), udp);
    }
    let counts = fan_out.counts(3).unwrap();
    let udp = udp.len() as u64;
    assert_eq!((counts.nowhere, counts.again), (400 - udp, 2 * udp));
    assert!(is_account_even(counts));
}

#[test]
fn classes_and_broadcasts_go_to_the_members_of_their_parts() {
    let table = table(true);
    share(&table, 0, &[0]);
    share(&table, 2, &[5, 6]);
    share(&table, EVERYBODY, &[0, 5, 6]);
    let program = "main = par3 (udp >-> classify 2 >-> steer_flow) (tcp >-> broadcast) drop";
    let mut fan_out = FanOut::new(0);
    assert!(fan_out.begin(3, group(program, &table)));
    let mut pools = [0, 5, 6].map(|slot| admit(&mut fan_out, of_group(slot), SIZE_OF_POOL));
    let frames = frames(300);
    poll_all(&mut fan_out, &mut source(&frames));
    let [default, one, other] = pools.each_mut().map(numbers);
    let is_tcp = |it: &&Frame| it.flow.transport == fanpcap_testkit::Transport::Tcp;
    let tcp: Vec<u64> = frames.iter().filter(is_tcp).map(|it| it.sequence).collect();
    assert_eq!(default, tcp);
    let all: BTreeSet<u64> = one.iter().chain(&other).copied().collect();
    assert_eq!(all.len(), 300);
    assert_eq!(
        one.len() + other.len(),
        300 + tcp.len(),
        "each UDP packet once"
    );
    assert!(is_account_even(fan_out.counts(3).unwrap()));
    share(&table, 2, &[]);
    poll_all(&mut fan_out, &mut source(&frames));
    let counts = fan_out.counts(3).unwrap();
    assert_eq!(
        counts.no_member,
        300 - tcp.len() as u64,
        "the class has no member"
    );
}

#[test]
fn each_group_gets_all_packets_and_ends_alone() {
    let (mut fan_out, mut pools) = scene(FLOW, &[0, 1]);
    let second = table(false);
    share(&second, 0, &[0]);
    assert!(
        !fan_out.begin(3, group(FLOW, &second)),
        "the number is in use"
    );
    assert!(!fan_out.begin(64, group(FLOW, &second)), "no such number");
    assert!(fan_out.begin(0, group("main = steer_flow", &second)));
    let other = MemberSlot { group: 0, slot: 0 };
    let mut all = admit(&mut fan_out, other, SIZE_OF_POOL);
    let frames = frames(200);
    poll_all(&mut fan_out, &mut source(&frames));
    assert_eq!(numbers(&mut all).len(), 200);
    let shared: usize = pools.iter_mut().map(|it| numbers(it).len()).sum();
    assert_eq!(shared, 200);
    assert_eq!(fan_out.end(0).unwrap().counts().produced, 200);
    assert!(fan_out.end(0).is_none() && fan_out.counts(0).is_none());
    poll_all(&mut fan_out, &mut source(&frames));
    assert_eq!(
        (numbers(&mut all).len(), fan_out.counts(3).unwrap().offered),
        (0, 400)
    );
}

#[test]
fn a_member_that_does_not_read_loses_only_its_own_packets() {
    let (mut fan_out, mut pools) = scene(FLOW, &[0, 1]);
    let frames = frames(3000);
    let mut got = 0;
    for _ in 0..10 {
        poll_all(&mut fan_out, &mut source(&frames));
        got += numbers(&mut pools[0]).len() as u64;
    }
    let [reads, hangs] = [0, 1].map(|slot| fan_out.counts_of(of_group(slot)).unwrap());
    assert_eq!((reads.produced, reads.dropped), (got, 0));
    assert!(hangs.dropped > 0, "its pool of 2 MiB is full");
    assert_eq!(reads.produced + hangs.produced + hangs.dropped, 30_000);
    assert_eq!(
        numbers(&mut pools[1]).len() as u64,
        hangs.produced,
        "the rest is there"
    );
    assert!(is_account_even(fan_out.counts(3).unwrap()));
}

#[test]
fn a_member_comes_and_goes_and_the_counts_stay() {
    let (mut fan_out, mut pools) = scene(FLOW, &[0, 1]);
    let frames = frames(500);
    poll_all(&mut fan_out, &mut source(&frames));
    let gone = fan_out.dismiss(of_group(1)).unwrap().counts();
    assert!(fan_out.dismiss(of_group(1)).is_none());
    assert_eq!(numbers(&mut pools[1]).len() as u64, gone.produced);
    poll_all(&mut fan_out, &mut source(&frames));
    let counts = fan_out.counts(3).unwrap();
    assert_eq!(
        counts.no_member, gone.produced,
        "its buckets are still its slot's"
    );
    let mut next = admit(&mut fan_out, of_group(1), SIZE_OF_POOL);
    poll_all(&mut fan_out, &mut source(&frames));
    assert_eq!(numbers(&mut next).len() as u64, gone.produced);
    let counts = fan_out.counts(3).unwrap();
    assert_eq!(
        (counts.offered, counts.produced),
        (1500, 1500 - gone.produced)
    );
    assert!(is_account_even(counts));
    assert!(fan_out.dismiss(MemberSlot { group: 5, slot: 0 }).is_none());
}

/// To free a pool or a group takes milliseconds, which the queue's thread does not have.
#[test]
fn what_is_replaced_or_refused_goes_back_to_the_caller() {
    let (mut fan_out, mut pools) = scene(FLOW, &[0]);
    poll_all(&mut fan_out, &mut source(&frames(100)));
    let writer = || {
        let (_, mut lanes) = PoolFile::create(PoolKind::File, SIZE_OF_POOL).unwrap();
        lanes.remove(0)
    };
    let former = fan_out.admit(of_group(0), writer(), ALL).unwrap();
    assert_eq!(former.unwrap().counts().produced, 100);
    assert_eq!(numbers(&mut pools[0]).len(), 100);
    assert_eq!(fan_out.counts(3).unwrap().produced, 100);
    let nowhere = MemberSlot { group: 5, slot: 0 };
    assert!(fan_out.admit(nowhere, writer(), ALL).is_err());
    let ready = group(FLOW, &table(false)).ready().unwrap();
    assert!(fan_out.install(3, ready).is_err());
}

#[test]
fn a_group_without_members_counts_its_packets() {
    let mut fan_out = FanOut::new(0);
    assert!(fan_out.begin(3, group(FLOW, &table(false))));
    poll_all(&mut fan_out, &mut source(&frames(100)));
    let counts = fan_out.counts(3).unwrap();
    assert_eq!((counts.offered, counts.no_member), (100, 100));
}

#[test]
fn what_a_source_says_of_a_packet_is_in_the_record() {
    let (mut fan_out, mut pools) = scene("main = steer_to 0", &[0]);
    let bytes = frames(1).remove(0).bytes;
    let tag = Some(Tag {
        tpid: 0x8100,
        tci: 77,
    });
    let mut whole = Packet::of(&bytes);
    whole.frame.tag = tag;
    let sent = Packet {
        stamp_ns: Some(999),
        is_sent: true,
        wire_len: 1500,
        ..Packet::of(&bytes)
    };
    poll_all(&mut fan_out, &mut Fake::of_packets(vec![whole, sent]));
    let pool = &mut pools[0];
    assert!(pool.open());
    let frame = pool.next_frame().unwrap().unwrap();
    let wire_len = u32::try_from(bytes.len() + 4).unwrap();
    assert_eq!(
        (frame.wire_len(), frame.stamp().nanoseconds),
        (wire_len, 1000),
        "the time of poll"
    );
    assert_eq!(frame.tag_inside().map(|it| it.tci), Some(77));
    assert_eq!(frame.data().len(), bytes.len() + 4);
    let frame = pool.next_frame().unwrap().unwrap();
    assert_eq!((frame.wire_len(), frame.stamp().nanoseconds), (1500, 999));
    assert_eq!((frame.link().pkttype, frame.data()), (4, &bytes[..]));
}

/// A device's hash may put the fragments of a datagram into different queues.
#[test]
fn the_fragments_of_a_datagram_go_to_one_member_whatever_their_queues() {
    let table = table(false);
    share(&table, 0, &[0, 1, 2]);
    let mut queues = [FanOut::new(0), FanOut::new(1)];
    let new = group(FLOW, &table);
    let mut pools = Vec::new();
    for (index, queue) in queues.iter_mut().enumerate() {
        assert!(queue.begin(3, new.for_other_queue()));
        let slots = [0, 1, 2].map(|slot| admit(queue, of_group(slot), SIZE_OF_POOL));
        pools.extend(slots.map(|pool| (index, pool)));
    }
    let mut owners: BTreeMap<u16, BTreeSet<usize>> = BTreeMap::new();
    for id in 1..60_u16 {
        let fragment = |field: u16, port: u16| {
            let mut packet = v4(17, field, &udp(port, 9, &[0; 40]));
            packet[4..6].copy_from_slice(&id.to_be_bytes());
            ethernet(0x0800, &packet)
        };
        // The first fragment has the ports. Others come in both queues.
        for (queue, field) in [(0, 0x2000), (1, 0x2006), (0, 0x000c)] {
            let frame = fragment(field, id);
            poll_all(&mut queues[queue], &mut Fake::new([&frame[..]]));
        }
        for (index, (_, pool)) in pools.iter_mut().enumerate() {
            if !drain(pool).is_empty() {
                owners.entry(id).or_default().insert(index % 3);
            }
        }
    }
    assert_eq!(owners.len(), 59);
    assert!(
        owners.values().all(|members| members.len() == 1),
        "{owners:?}"
    );
    let all: BTreeSet<usize> = owners.into_values().flatten().collect();
    assert_eq!(all.len(), 3, "by ports, not by addresses");
    assert_eq!(queues[0].steering(3).unwrap().late(), 0);
}

#[test]
fn who_does_not_want_sent_packets_gets_none() {
    let table = table(false);
    share(&table, 0, &[0, 1]);
    let mut fan_out = FanOut::new(0);
    assert!(fan_out.begin(3, group("main = ip", &table)));
    let mut all = admit(&mut fan_out, of_group(0), SIZE_OF_POOL);
    let (file, mut lanes) = PoolFile::create(PoolKind::File, SIZE_OF_POOL).unwrap();
    let received_only = Wants {
        snaplen: 40,
        sent: false,
    };
    let admitted = fan_out.admit(of_group(1), lanes.remove(0), received_only);
    assert!(admitted.unwrap().is_none());
    let frames = frames(100);
    let packets = frames.iter().map(|it| Packet {
        is_sent: it.sequence % 2 == 0,
        ..Packet::of(&it.bytes)
    });
    poll_all(&mut fan_out, &mut Fake::of_packets(packets.collect()));
    let is_ip = |it: &&Frame| it.flow.client.is_ipv4();
    let expected: Vec<&Frame> = frames.iter().filter(is_ip).collect();
    assert_eq!(drain(&mut all).len(), expected.len());
    let received = expected.iter().filter(|it| it.sequence % 2 == 1);
    let cut: Vec<&[u8]> = received.map(|it| &it.bytes[..40]).collect();
    assert_eq!(drain(&mut scene::reader(&file)), cut);
    let counts = fan_out.counts(3).unwrap();
    assert_eq!(counts.unwanted, (expected.len() - cut.len()) as u64);
    assert!(is_account_even(counts));
}

#[test]
fn a_balanced_group_counts_the_packets_of_each_bucket() {
    let table = table(false);
    share(&table, 0, &[0]);
    let mut fan_out = FanOut::new(0);
    let balanced = NewGroup {
        options: GroupOptions::balanced(Balance::Idle),
        ..group(FLOW, &table)
    };
    assert!(fan_out.begin(3, balanced));
    let frames = frames(300);
    poll_all(&mut fan_out, &mut source(&frames));
    let NewGroup { steering, .. } = group(FLOW, &table);
    let mut expected = vec![0; BUCKETS];
    for frame in &frames {
        let decision = Evaluator::clone(&steering).decide(&packet(&frame.bytes));
        let Decision::Steer(hash) = decision else {
            panic!("{decision:?}");
        };
        expected[bucket(hash)] += 1;
    }
    let loads: &[AtomicU32] = table.view(LOADS, 2 * BUCKETS).unwrap();
    let loads = loads.iter().step_by(2).map(|it| it.load(Ordering::Relaxed));
    assert!(loads.eq(expected));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever another thread writes to the table, and whatever the frames are, each packet is
    /// counted.
    #[test]
    fn any_table_and_any_frames_have_an_even_account(
        garbage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..200),
        frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..200),
        program in prop::sample::select(vec![
            FLOW, "main = inc 3", "main = double_steer_ip", "main = steer_link",
            "main = classify 7 >-> steer_rrobin", "main = broadcast", "main = kernel",
        ]),
    ) {
        let memory = table(true);
        for (at, byte) in &garbage {
            memory.bytes()[at.index(memory.len())].store(*byte, Ordering::Relaxed);
        }
        let mut fan_out = FanOut::new(0);
        prop_assert!(fan_out.begin(3, group(program, &memory)));
        let _pools = [0, 1, 9].map(|slot| admit(&mut fan_out, of_group(slot), SIZE_OF_POOL));
        let mut source = Fake::new(frames.iter().map(|it| &it[..]));
        poll_all(&mut fan_out, &mut source);
        prop_assert_eq!(source.released, frames.len() as u64);
        let counts = fan_out.counts(3).unwrap();
        prop_assert_eq!(counts.offered, frames.len() as u64);
        prop_assert!(is_account_even(counts), "{:?}", counts);
    }
}

#[test]
fn memory_that_is_no_table_is_refused() {
    let memory = fanpcap_linux::file::sealed::create_memory(c"fanpcap_test", 4096).unwrap();
    let mut fan_out = FanOut::new(0);
    assert!(!fan_out.begin(3, group(FLOW, &memory.into())));
    assert!(
        fan_out.begin(3, group(FLOW, &table(true))),
        "the number is free"
    );
}

#[test]
fn a_burst_is_bounded() {
    let (mut fan_out, _pools) = scene(FLOW, &[0]);
    let frames = frames(100);
    let mut source = source(&frames);
    let mut poll = || fan_out.poll(&mut source, 1, &mut |_| {}).unwrap();
    assert_eq!([poll(), poll(), poll()], [BURST, 100 - BURST, 0]);
}
