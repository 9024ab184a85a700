//! Compares what a queue does with packets with what the evaluator decides about them: on drawn
//! steering programs, tables, members and packets. Each packet must be in the pools of exactly the
//! slots that the evaluator and the group's table select, in order and with the same bytes, and all
//! counts must be equal.
//!
//! FANPCAP_PROOF_SEED is the first seed, and FANPCAP_PROOF_PACKETS the number of packets.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(unreachable_pub, reason = "modules of a test")]

mod scene;
#[path = "proof/model.rs"]
mod model;
#[path = "proof/drawn.rs"]
mod drawn;

use drawn::Drawn;
use fanpcap_buckets::layout::{BUCKETS, LOADS};
use fanpcap_poll::{PoolFile, PoolKind, PoolSize};
use fanpcap_poller::{BURST, FanOut, GroupCounts, MemberSlot, Packet};
use fanpcap_ring::{Layout as _, Pool, Stamp};
use fanpcap_steer::native::plain;
use fanpcap_steer_testkit::{Draw, Made, packets, tape};
use model::Record;
use scene::{Fake, reader};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

/// Packets of each seed.
const PACKETS: usize = 500;
/// Packets of all seeds.
const ALL: usize = 60_000;
const QUEUES: u16 = 2;
const GROUPS: u8 = 2;

/// Room for the packets of a burst.
const SIZE: PoolSize = PoolSize {
    lanes: QUEUES as u32,
    block_len: 256 << 10,
    blocks: 4,
};

/// The queues of a device, its groups, and the readers of the members' pools.
struct Proof {
    seed: u64,
    queues: Vec<FanOut>,
    groups: Vec<Drawn>,
    pools: BTreeMap<MemberSlot, Pool>,
    /// Packets that took the straight path of the mode `flow`.
    straight: u64,
}

impl Proof {
    fn begin(seed: u64) -> Self {
        let mut proof = Self {
            seed,
            queues: (0..QUEUES).map(FanOut::new).collect(),
            groups: Vec::new(),
            pools: BTreeMap::new(),
            straight: 0,
        };
        for number in 0..GROUPS {
            let seed = (seed << 1) | u64::from(number);
            let group = Drawn::of(seed, usize::from(QUEUES));
            for queue in &mut proof.queues {
                assert!(queue.begin(number, group.new.for_other_queue()));
            }
            proof.groups.push(group);
        }
        proof
    }

    /// Lets a member come or go.
    fn change_member(&mut self, number: u8, draw: &mut Draw<'_>) {
        let group = &mut self.groups[usize::from(number)];
        let slot = draw.pick(&group.slots);
        let at = MemberSlot {
            group: number,
            slot,
        };
        if group.model.members.remove(&slot).is_some() {
            for queue in &mut self.queues {
                assert!(queue.dismiss(at).is_some());
            }
            let records = self.pools.remove(&at).map(|mut pool| drain(&mut pool));
            assert_eq!(records, Some(Vec::new()), "all are read already");
            return;
        }
        let wants = Drawn::wants(draw);
        let (file, lanes) = PoolFile::create(PoolKind::File, SIZE).unwrap();
        for (queue, lane) in self.queues.iter_mut().zip(lanes) {
            assert!(queue.admit(at, lane, wants).unwrap().is_none());
        }
        self.pools.insert(at, reader(&file));
        group.model.members.insert(slot, wants);
    }

    /// Gives a burst to a queue, and compares all pools with the models.
    fn burst(&mut self, queue: u16, burst: &[Packet<'_>], now_ns: u64) {
        let mut expected: BTreeMap<MemberSlot, Vec<Record>> = BTreeMap::new();
        for (group, drawn) in (0..).zip(&mut self.groups) {
            let is_flow = fanpcap_steer::is_of_mode(drawn.new.steering.program(), "flow");
            let straight = burst
                .iter()
                .filter(|it| plain::flow_hash(it.frame.bytes).is_some());
            self.straight += u64::from(is_flow) * straight.count() as u64;
            for packet in burst {
                for (slot, record) in drawn.model.take(queue, packet, now_ns) {
                    let of_slot = expected.entry(MemberSlot { group, slot });
                    of_slot.or_default().push(record);
                }
            }
        }
        let mut source = Fake::of_packets(burst.to_vec());
        source.queue = queue;
        let mut woken = Vec::new();
        let polled =
            self.queues[usize::from(queue)].poll(&mut source, now_ns, &mut |at| woken.push(at));
        assert_eq!(polled.unwrap(), burst.len());
        for (at, pool) in &mut self.pools {
            let found = drain(pool);
            let expected = expected.remove(at).unwrap_or_default();
            assert!(
                found == expected,
                "seed {}, {at:?}: found {found:#?}, expected {expected:#?}; {:#?}",
                self.seed,
                self.groups[usize::from(at.group)].new.steering.program()
            );
        }
        assert!(expected.is_empty(), "no pool has {expected:?}");
    }

    /// Compares the counts of all queues, and returns their sum.
    fn end(&self) -> (GroupCounts, u64) {
        let (mut sum, mut late) = (GroupCounts::default(), 0);
        for (number, Drawn { model, new, .. }) in (0..).zip(&self.groups) {
            let seed = (self.seed, number);
            for (fan_out, on_queue) in self.queues.iter().zip(&model.queues) {
                let counts = fan_out.counts(number).unwrap();
                assert_eq!(counts, on_queue.counts, "{seed:?}");
                let steering = fan_out.steering(number).unwrap();
                let reference = &on_queue.evaluator;
                assert_eq!(steering.counters(), reference.counters(), "{seed:?}");
                assert_eq!(steering.late(), reference.late(), "{seed:?}");
                sum.add_all(&counts);
                late += steering.late();
            }
            let loads: &[AtomicU32] = new.table.view(LOADS, 2 * BUCKETS).unwrap();
            let loads = loads.iter().step_by(2).map(|it| it.load(Ordering::Relaxed));
            assert!(loads.eq(model.loads.iter().copied()), "loads: {seed:?}");
        }
        (sum, late)
    }
}

/// Reads all records of a pool.
fn drain(pool: &mut Pool) -> Vec<Record> {
    let mut all = Vec::new();
    while pool.open() {
        while let Some(frame) = pool.next_frame().unwrap() {
            all.push(Record {
                bytes: frame.data().to_vec(),
                wire_len: frame.wire_len(),
                stamp_ns: frame.stamp().since(Stamp::default()),
                flags: frame.record_flags(),
            });
        }
        pool.release();
    }
    all
}

/// A packet as a source lends it.
fn lent<'m>(made: &'m Made, draw: &mut Draw<'_>) -> Packet<'m> {
    Packet {
        frame: made.frame(),
        wire_len: made.length,
        hash: made.hash,
        stamp_ns: draw.one_in(3).then(|| draw.u32().into()),
        is_sent: draw.one_in(4),
    }
}

/// Runs the case of a seed.
fn run(seed: u64) -> Proof {
    let tape_of_case = tape(seed ^ (1 << 50), 16 * PACKETS);
    let mut draw = Draw::new(&tape_of_case);
    let made: Vec<Made> = (0..PACKETS as u64)
        .map(|number| packets::packet(&mut Draw::new(&tape((seed << 20) | number, 420))))
        .collect();
    let mut proof = Proof::begin(seed);
    for number in 0..GROUPS {
        (0..4).for_each(|_| proof.change_member(number, &mut draw));
    }
    let (mut now_ns, mut rest) = (1_000_000_000, &made[..]);
    while !rest.is_empty() {
        let (some, others) = rest.split_at((1 + draw.below(BURST)).min(rest.len()));
        rest = others;
        now_ns += some[0].gap_ns;
        let burst: Vec<Packet<'_>> = some.iter().map(|it| lent(it, &mut draw)).collect();
        proof.burst(u16::from(draw.one_in(2)), &burst, now_ns);
        let number = draw.byte() % GROUPS;
        match draw.below(4) {
            0 => proof.change_member(number, &mut draw),
            1 => proof.groups[usize::from(number)].change_table(draw.u64()),
            _ => {}
        }
    }
    proof
}

fn variable(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

#[test]
fn packets_go_where_the_evaluator_and_the_table_say() {
    let first = variable("FANPCAP_PROOF_SEED", 0);
    let packets = variable("FANPCAP_PROOF_PACKETS", ALL as u64);
    let (mut sum, mut late, mut straight) = (GroupCounts::default(), 0, 0);
    for seed in first..first + packets.div_ceil(PACKETS as u64) {
        let proof = run(seed);
        let (counts, late_here) = proof.end();
        sum.add_all(&counts);
        late += late_here;
        straight += proof.straight;
    }
    let seen = [
        ("in pools", sum.produced),
        ("copies", sum.again),
        ("dropped by programs", sum.nowhere),
        ("without a member", sum.no_member),
        ("sent and not wanted", sum.unwanted),
        ("late fragments", late),
        ("on the straight path", straight),
    ];
    // A seed has all packets once more, so that no kind of packet is missing by chance.
    let few = packets / 1000;
    assert!(seen.iter().all(|(_, count)| *count > few), "{seen:?}");
    assert_eq!(sum.dropped, 0, "the pools have room");
}

/// Shows the bytes in hexadecimal, as the packets of other tests.
impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(
            f,
            " ({} on the wire), {} ns, flags {}",
            self.wire_len, self.stamp_ns, self.flags
        )
    }
}
