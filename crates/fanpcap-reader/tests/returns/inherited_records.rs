//! A successor reads a dead member's pool of records. What the successor's filter rejects and cuts
//! depends on whether a kernel has run filters on the packets.

use super::fake::{LATER, NONBLOCKING, OPTIONS, Return, dispatch, times};
use super::group_tasks::FakeGroup;
use super::program::{FakeProgram, offset, record, records};
use super::records::{TIMEOUT, longer_than};
use fanpcap_bpf::Classic;
use fanpcap_linux::file::shared;
use fanpcap_reader::{PublishedPosition, Reader, Takeover};
use std::sync::atomic::Ordering;
use std::thread;

const COUNT: fn(i32) -> Return = Return::Count;

fn position() -> PublishedPosition {
    let [taken, mark] = shared::own(&[0; 2]);
    PublishedPosition { taken, mark }
}

#[test]
fn a_dead_members_records_are_inherited() {
    let (dead, input) = FakeProgram::new(TIMEOUT);
    let its_reader = Reader::new(input, &NONBLOCKING).unwrap();
    dead.arrive(&records([1, 3, 4, 6]));
    assert_eq!(times(&its_reader, 2).1, [1, 3]);
    let published = position();
    let (device, input) = FakeProgram::new(TIMEOUT);
    let reader = Reader::new(input, &NONBLOCKING).unwrap();
    let tasks = FakeGroup::new();
    let takeover = Takeover {
        remains: dead.remains(2),
        published: published.clone(),
        rejected: None,
        claims: None,
        done: Box::new(|taken| assert_eq!(taken, 2)),
    };
    tasks.inherited.lock().unwrap().push_back(vec![takeover]);
    tasks.join(&reader);
    device.arrive(&records([2, 5, 7]));
    let all = vec![2, 4, 5, 6, 7];
    assert_eq!(times(&reader, -1), (COUNT(5), all));
    assert_eq!(published.taken.get(), 4);
    device.arrive(&records([8]));
    assert_eq!(times(&reader, -1), (COUNT(1), vec![8]));
}

/// A poller may stamp all packets of a burst with one time. A flow that moves within the burst has
/// its first packets in the dead member's pool.
#[test]
fn of_packets_with_one_stamp_the_inherited_ones_come_first() {
    let later: fn() -> u64 = || offset() + 5000;
    for other_offset in [offset, later] {
        let (dead, _input) = FakeProgram::new(TIMEOUT);
        dead.arrive(&[record(1, 60), record(2, 61)]);
        let (device, input) = FakeProgram::new(TIMEOUT);
        let reader = Reader::new(input, &NONBLOCKING).unwrap();
        let tasks = FakeGroup::new();
        let takeover = Takeover {
            remains: dead.remains_by(0, other_offset),
            published: position(),
            rejected: None,
            claims: None,
            done: Box::new(|_| {}),
        };
        tasks.inherited.lock().unwrap().push_back(vec![takeover]);
        tasks.join(&reader);
        device.arrive(&[record(1, 70), record(2, 71)]);
        let mut lengths = Vec::new();
        dispatch(&reader, -1, |packet| lengths.push(packet.data.len()));
        assert_eq!(lengths, [60, 70, 61, 71]);
    }
}

/// Only a poller, which runs no filters, gives the reader the word for rejected packets. The
/// packets are among those that came for the dead member, not among those of the reader's member.
#[test]
fn what_the_filter_rejects_and_cuts_of_an_inherited_pool_depends_on_whether_a_kernel_filtered() {
    for is_filtered in [true, false] {
        let (dead, _input) = FakeProgram::new(TIMEOUT);
        dead.arrive(&[record(1, 60), record(2, 80), record(3, 60)]);
        let (_device, input) = FakeProgram::new(TIMEOUT);
        let reader = Reader::new(input, &NONBLOCKING).unwrap();
        let keeps_20 = [
            &longer_than(70)[..2],
            &[Classic::keep(20), Classic::keep(0)],
        ]
        .concat();
        reader.set_filter(keeps_20.clone(), None);
        let [rejected] = shared::own(&[5]);
        let takeover = Takeover {
            remains: dead.remains(0),
            published: position(),
            rejected: (!is_filtered).then(|| rejected.clone()),
            claims: None,
            done: Box::new(|taken| assert_eq!(taken, 3)),
        };
        let tasks = FakeGroup::new();
        tasks.inherited.lock().unwrap().push_back(vec![takeover]);
        tasks.join(&reader);
        let mut got = Vec::new();
        dispatch(&reader, 1, |packet| {
            got.push((packet.fraction, packet.data.len()))
        });
        // A new filter holds for the rest of the pool, too.
        reader.set_filter(keeps_20, None);
        assert_eq!(times(&reader, -1).1, []);
        let (cut, count) = if is_filtered { (80, 5) } else { (20, 7) };
        assert_eq!((got, rejected.get()), (vec![(2, cut)], count));
        assert_eq!(reader.control().rejected(), 0);
    }
}

#[test]
fn a_dead_members_count_of_packets_may_be_garbage() {
    let (dead, _input) = FakeProgram::new(TIMEOUT);
    dead.arrive(&[record(1, 60), record(2, 80)]);
    let (_device, input) = FakeProgram::new(TIMEOUT);
    let reader = Reader::new(input, &NONBLOCKING).unwrap();
    reader.set_filter(longer_than(70), None);
    let [rejected] = shared::own(&[u64::MAX]);
    let published = position();
    published.taken.set(u64::MAX);
    let takeover = Takeover {
        remains: dead.remains(u64::MAX),
        published: published.clone(),
        rejected: Some(rejected.clone()),
        claims: None,
        done: Box::new(|_| {}),
    };
    let tasks = FakeGroup::new();
    tasks.inherited.lock().unwrap().push_back(vec![takeover]);
    tasks.join(&reader);
    assert_eq!(times(&reader, -1).1, [2]);
    assert_eq!((published.taken.get(), rejected.get()), (1, 0));
}

/// Another process gives away the dead member's buckets, so later packets of its flows may come
/// before its pool.
#[test]
fn a_reader_that_holds_delivers_nothing_before_it_has_inherited() {
    for options in [NONBLOCKING, OPTIONS] {
        let (dead, _input) = FakeProgram::new(TIMEOUT);
        dead.arrive(&records([1, 3]));
        let (device, input) = FakeProgram::new(TIMEOUT);
        let reader = Reader::new(input, &options).unwrap();
        let tasks = FakeGroup::new();
        tasks.holds.store(true, Ordering::SeqCst);
        tasks.join(&reader);
        device.arrive(&records([2]));
        if options.nonblocking {
            for _ in 0..3 {
                assert_eq!(times(&reader, -1), (COUNT(0), vec![]));
            }
        }
        thread::scope(|scope| {
            let go_on = scope.spawn(|| {
                while tasks.attended() == 0 {
                    thread::yield_now();
                }
                thread::sleep(LATER);
                device.arrive(&records([4]));
                let takeover = Takeover {
                    remains: dead.remains(0),
                    published: position(),
                    rejected: None,
                    claims: None,
                    done: Box::new(|_| {}),
                };
                tasks.inherited.lock().unwrap().push_back(vec![takeover]);
                tasks.holds.store(false, Ordering::SeqCst);
                tasks.call();
            });
            if options.nonblocking {
                go_on.join().unwrap();
            }
            assert_eq!(times(&reader, -1), (COUNT(4), vec![1, 2, 3, 4]));
        });
        device.arrive(&records([5]));
        assert_eq!(times(&reader, -1), (COUNT(1), vec![5]));
    }
}
