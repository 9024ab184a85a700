//! A successor reads a dead member's ring. The successor must deliver the packets in time order,
//! together with its own packets. Each packet must be delivered once, at whatever packet a reader
//! stops.

use super::fake::{FakeDevice, NONBLOCKING, OPTIONS, Return, dispatch, packet, times};
use super::group_tasks::{FakeGroup, keep};
use super::kernel::Packet;
use fanpcap_bpf::Classic;
use fanpcap_bpf::classic::opcode::*;
use fanpcap_reader::{Call, Direction, Options, PublishedPosition, Reader, Takeover};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const COUNT: fn(i32) -> Return = Return::Count;

struct Dead {
    device: FakeDevice,
    position: PublishedPosition,
    /// The number of frames that the successors have taken, with which they called `done`;
    /// `u64::MAX` before the call.
    done: Arc<AtomicU64>,
    /// Keeps the ring's memory.
    _reader: Reader,
}

impl Dead {
    /// A member that has got these packets, and whose reader has taken `taken` of them.
    fn new(is_v3: bool, blocks: &[&[Packet]], taken: usize) -> Self {
        let (mut device, input) = FakeDevice::new(is_v3, None);
        let reader = Reader::new(input, &NONBLOCKING).unwrap();
        let position = keep(&reader);
        for packets in blocks {
            device.arrive(packets);
        }
        let mut call = Call::new(-1);
        for _ in 0..taken {
            let mut packet = fanpcap_reader::Packet::NONE;
            // SAFETY: one thread reads.
            unsafe { reader.next(&mut call, &mut packet) }.unwrap();
        }
        // The reader dies in the callback of its last packet. So it is not used any more, and
        // publishes nothing more.
        let done = Arc::new(AtomicU64::new(u64::MAX));
        Self {
            device,
            position,
            done,
            _reader: reader,
        }
    }

    /// The takeover of the member's ring, from the position that its last reader has published.
    fn takeover(&self) -> Takeover {
        let done = Arc::clone(&self.done);
        Takeover {
            remains: self.device.remains(self.position.get()),
            published: self.position.clone(),
            rejected: None,
            claims: None,
            done: Box::new(move |taken| done.store(taken, Ordering::SeqCst)),
        }
    }

    fn done(&self) -> Option<u64> {
        let taken = self.done.load(Ordering::SeqCst);
        Some(taken).filter(|&taken| taken != u64::MAX)
    }
}

/// Creates a device and its reader. At its next read, the reader takes over the rings of `dead`.
fn taker(dead: &[&Dead], is_v3: bool, options: &Options) -> (FakeDevice, Reader, Arc<FakeGroup>) {
    let (device, input) = FakeDevice::new(is_v3, Some(Duration::from_millis(10)));
    let reader = Reader::new(input, options).unwrap();
    let tasks = FakeGroup::new();
    let inherited = dead.iter().map(|dead| dead.takeover()).collect();
    tasks.inherited.lock().unwrap().push_back(inherited);
    tasks.join(&reader);
    (device, reader, tasks)
}

fn packets<const N: usize>(numbers: [u32; N]) -> [Packet; N] {
    numbers.map(|number| packet(number, 60))
}

#[test]
fn an_inherited_lane_comes_in_the_order_of_time_and_goes() {
    for (of_dead, of_taker) in [(true, true), (true, false), (false, true), (false, false)] {
        let dead = Dead::new(of_dead, &[&packets([1, 2, 4]), &packets([6, 8])], 1);
        let (mut device, reader, _company) = taker(&[&dead], of_taker, &NONBLOCKING);
        device.arrive(&packets([3, 5]));
        device.arrive(&packets([7, 9]));
        let all = (2..10).collect();
        assert_eq!(times(&reader, -1), (COUNT(8), all), "{of_dead} {of_taker}");
        assert_eq!(times(&reader, -1), (COUNT(0), vec![]));
        assert_eq!(dead.done(), Some(4));
        assert_eq!(dead.position.get().taken, 5);
        device.arrive(&packets([10, 11]));
        assert_eq!(times(&reader, -1), (COUNT(2), vec![10, 11]));
    }
}

#[test]
fn a_read_delivers_no_more_than_it_may() {
    for is_v3 in [true, false] {
        let dead = Dead::new(is_v3, &[&packets([1, 3])], 0);
        let (mut device, reader, _company) = taker(&[&dead], is_v3, &NONBLOCKING);
        device.arrive(&packets([4, 5]));
        assert_eq!(times(&reader, 2), (COUNT(2), vec![1, 3]), "{is_v3}");
        reader.control().break_loop();
        assert_eq!(times(&reader, 2), (Return::Break, vec![]), "{is_v3}");
        assert_eq!(times(&reader, 1), (COUNT(1), vec![4]), "{is_v3}");
        assert_eq!(times(&reader, 1), (COUNT(1), vec![5]), "{is_v3}");
        assert_eq!(dead.done(), Some(2));
    }
}

#[test]
fn who_waits_reads_what_it_inherits() {
    for is_v3 in [true, false] {
        let dead = Dead::new(is_v3, &[&packets([1, 2]), &packets([3])], 0);
        let (_device, reader, tasks) = taker(&[], is_v3, &OPTIONS);
        let inherited = vec![dead.takeover()];
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(30));
                tasks.inherited.lock().unwrap().push_back(inherited);
                tasks.call();
            });
            assert_eq!(times(&reader, -1), (COUNT(3), vec![1, 2, 3]), "{is_v3}");
        });
    }
}

#[test]
fn the_takers_own_filter_direction_and_length_hold() {
    let outgoing = Packet {
        pkttype: 4,
        ..packet(2, 80)
    };
    let dead = Dead::new(
        true,
        &[&[packet(1, 80), outgoing, packet(3, 50), packet(4, 90)]],
        0,
    );
    let options = Options {
        snaplen: 70,
        ..NONBLOCKING
    };
    let (mut device, reader, _company) = taker(&[&dead], true, &options);
    reader.control().set_direction(Direction::In);
    // The filter accepts packets of more than 55 bytes.
    let filter = vec![
        Classic::new(LD_W_LEN, 0),
        Classic::jump(JMP_JGT_K, 55, 0, 1),
        Classic::keep(u32::MAX),
        Classic::keep(0),
    ];
    reader.set_filter(filter, Some(0));
    let mut got = Vec::new();
    dispatch(&reader, -1, |packet| {
        got.push((packet.fraction, packet.data.len(), packet.len))
    });
    assert_eq!(got, [(1, 70, 80), (4, 70, 90)]);
    device.arrive(&[packet(5, 60)]);
    assert_eq!(times(&reader, -1), (COUNT(1), vec![5]));
    assert_eq!(dead.done(), Some(4), "rejected frames count too");
}

#[test]
fn two_rings_are_inherited_at_once() {
    let first = Dead::new(true, &[&packets([1, 4])], 0);
    let second = Dead::new(false, &[&packets([2, 3, 6])], 0);
    let (mut device, reader, _company) = taker(&[&first, &second], true, &NONBLOCKING);
    device.arrive(&packets([5, 7]));
    assert_eq!(times(&reader, -1), (COUNT(7), (1..8).collect()));
    times(&reader, -1);
    assert_eq!((first.done(), second.done()), (Some(2), Some(3)));
}

#[test]
fn who_stops_in_the_middle_is_taken_over_in_turn() {
    for is_v3 in [true, false] {
        for (died_at, stopped_at) in (0..7).flat_map(|died| (0..7 - died).map(move |at| (died, at)))
        {
            let blocks: [&[Packet]; 3] = [&packets([1, 2]), &packets([3, 4, 5]), &packets([6])];
            let dead = Dead::new(is_v3, &blocks, died_at);
            let seen = Mutex::new((1..=died_at as i64).collect::<Vec<_>>());
            let (_device, reader, _company) = taker(&[&dead], is_v3, &NONBLOCKING);
            let mut call = Call::new(-1);
            for _ in 0..stopped_at {
                let mut packet = fanpcap_reader::Packet::NONE;
                // SAFETY: one thread reads. Like a killed thread, it never comes back.
                unsafe { reader.next(&mut call, &mut packet) }.unwrap();
                seen.lock().unwrap().push(packet.fraction);
            }
            drop(reader);
            assert_eq!(dead.done(), None);
            let (_device, reader, _company) = taker(&[&dead], is_v3, &NONBLOCKING);
            dispatch(&reader, -1, |got| seen.lock().unwrap().push(got.fraction));
            times(&reader, -1);
            let all: Vec<i64> = (1..7).collect();
            assert_eq!(*seen.lock().unwrap(), all, "{is_v3} {died_at} {stopped_at}");
            assert_eq!(dead.done(), Some(6 - (died_at + stopped_at) as u64));
        }
    }
}

#[test]
fn a_callback_that_does_not_return_loses_nothing() {
    for is_v3 in [true, false] {
        let dead = Dead::new(is_v3, &[&packets([1, 3])], 0);
        let (mut device, reader, _company) = taker(&[&dead], is_v3, &NONBLOCKING);
        device.arrive(&packets([2, 4]));
        let mut seen = Vec::new();
        for _ in 0..4 {
            // The application leaves each read after its first packet, as by longjmp(3).
            let mut packet = fanpcap_reader::Packet::NONE;
            // SAFETY: one thread reads.
            unsafe { reader.next(&mut Call::new(-1), &mut packet) }.unwrap();
            seen.push(packet.fraction);
        }
        assert_eq!(seen, [1, 2, 3, 4], "{is_v3}");
        assert_eq!(times(&reader, -1), (COUNT(0), vec![]));
        assert_eq!(dead.done(), Some(2));
    }
}

#[test]
fn garbage_of_a_dead_member_fails_no_read() {
    for is_v3 in [true, false] {
        let dead = Dead::new(is_v3, &[&packets([1, 2])], 0);
        dead.device.spoil();
        let (mut device, reader, _company) = taker(&[&dead], is_v3, &NONBLOCKING);
        device.arrive(&packets([3]));
        assert_eq!(times(&reader, -1), (COUNT(2), vec![2, 3]), "{is_v3}");
    }
}

#[test]
fn an_application_that_waits_for_packets_alone_gets_them_at_once() {
    let (_device, input) = FakeDevice::new(true, Some(Duration::from_secs(60)));
    let reader = Reader::new(input, &NONBLOCKING).unwrap();
    assert_eq!(reader.control().selectable(), None);
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    let young = Packet {
        seconds: now.as_secs() as u32,
        ..packet(1, 60)
    };
    let dead = Dead::new(true, &[&[young]], 0);
    let tasks = FakeGroup::new();
    tasks
        .inherited
        .lock()
        .unwrap()
        .push_back(vec![dead.takeover()]);
    tasks.join(&reader);
    assert_eq!(times(&reader, -1), (COUNT(1), vec![1]));
}
