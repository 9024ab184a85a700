//! A reader of the records that a BPF program writes for packets. The tests check what a read
//! delivers, when a read waits, and after how many bytes the reader requests a wake-up before it
//! waits.

use super::fake::{FakeDevice, LATER, NONBLOCKING, OPTIONS, Return, dispatch, packet, times};
use super::program::{FakeProgram, offset, record, records};
use super::written::{Written, room_of, written};
use fanpcap_bpf::Classic;
use fanpcap_bpf::classic::ancillary::*;
use fanpcap_bpf::classic::opcode::*;
use fanpcap_linux::file::shared;
use fanpcap_linux::wait::events;
use fanpcap_reader::{Direction, PublishedCounters, Reader};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) const TIMEOUT: Option<Duration> = Some(Duration::from_millis(100));
const IMMEDIATE: Option<Duration> = Some(Duration::ZERO);

const COUNT: fn(i32) -> Return = Return::Count;

#[test]
fn a_read_delivers_what_is_there() {
    let (device, input) = FakeProgram::new(TIMEOUT);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    device.arrive(&records([1, 2, 3]));
    assert_eq!(times(&reader, -1), (COUNT(3), vec![1, 2, 3]));
    device.arrive(&records([400]));
    assert_eq!(times(&reader, 0), (COUNT(1), vec![400]));
    device.arrive(&records([500, 501, 502]));
    assert_eq!(times(&reader, 2), (COUNT(2), vec![500, 501]));
    assert_eq!(times(&reader, 2), (COUNT(1), vec![502]));
}

#[test]
fn a_packet_comes_as_it_was_on_the_wire() {
    let (device, input) = FakeProgram::new(TIMEOUT);
    let reader = Reader::new(input, &NONBLOCKING).unwrap();
    let cut = Written {
        cut: 900,
        ..record(1, 50)
    };
    device.arrive(&[cut]);
    dispatch(&reader, -1, |got| {
        assert_eq!((got.seconds, got.fraction, got.len), (7, 1, 950));
        assert_eq!(got.data, (0..50).collect::<Vec<u8>>());
    });
}

/// Packets that come during a read belong to the next read. If they belonged to the same read, it
/// would not end while packets come faster than the application takes them.
#[test]
fn a_read_ends_with_what_was_there() {
    let (device, input) = FakeProgram::new(TIMEOUT);
    let reader = Reader::new(input, &NONBLOCKING).unwrap();
    device.arrive(&records([1, 2]));
    let returned = dispatch(&reader, -1, |got| {
        device.arrive(&records([got.fraction as u64 + 10]))
    });
    assert_eq!(returned, COUNT(2));
    assert_eq!(times(&reader, -1), (COUNT(2), vec![11, 12]));
}

#[test]
fn an_empty_ring_is_waited_for() {
    for timeout in [None, TIMEOUT, IMMEDIATE] {
        let (device, input) = FakeProgram::new(timeout);
        let reader = Reader::new(input, &OPTIONS).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(LATER);
                device.arrive(&records([1]));
            });
            assert_eq!(times(&reader, -1), (COUNT(1), vec![1]));
        });
        assert_eq!(*device.armed.lock().unwrap(), [1]);
    }
    let (_device, input) = FakeProgram::new(TIMEOUT);
    let reader = Reader::new(input, &NONBLOCKING).unwrap();
    assert_eq!(times(&reader, -1), (COUNT(0), vec![]));
}

/// The first call has read as many packets as the application requested, and all that had come. So
/// the second call must wait for a packet.
#[test]
fn a_call_after_one_that_had_its_number_waits() {
    let (device, input) = FakeProgram::new(TIMEOUT);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    device.arrive(&records([1]));
    assert_eq!(times(&reader, 1), (COUNT(1), vec![1]));
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(LATER);
            device.arrive(&records([2]));
        });
        assert_eq!(times(&reader, 1), (COUNT(1), vec![2]));
    });
}

/// The engine sends no wake-up for a packet that comes after the reader has checked the ring and
/// before the reader waits. So the reader must check the ring again after its request for a
/// wake-up.
#[test]
fn a_packet_that_comes_before_the_wait_is_not_waited_for() {
    let (device, input) = FakeProgram::new(None);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    device.late.lock().unwrap().extend(records([1]));
    assert_eq!(times(&reader, -1), (COUNT(1), vec![1]));
}

#[test]
fn a_break_ends_the_wait() {
    let (_device, input) = FakeProgram::new(None);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(LATER);
            reader.control().break_loop();
        });
        assert_eq!(times(&reader, -1), (Return::Break, vec![]));
    });
}

/// The descriptor becomes readable after a time, even if no packet has come. The read after that
/// must not wait.
#[test]
fn whom_the_descriptor_has_woken_does_not_wait() {
    for timeout in [None, TIMEOUT] {
        let (device, input) = FakeProgram::new(timeout);
        let reader = Reader::new(input, &OPTIONS).unwrap();
        let descriptor = reader.control().selectable().unwrap();
        device.arrive(&records([1]));
        assert_eq!(times(&reader, -1).0, COUNT(1));
        device.arrive(&(1..=100).map(|it| record(it * 10, 60)).collect::<Vec<_>>());
        assert_eq!(times(&reader, -1).0, COUNT(100));
        assert!(wait_for(descriptor).is_some());
        assert_eq!(times(&reader, -1), (COUNT(0), vec![]));
    }
}

#[test]
fn garbage_is_an_error_and_the_reader_goes_on() {
    let (device, input) = FakeProgram::new(TIMEOUT);
    let reader = Reader::new(input, &NONBLOCKING).unwrap();
    device.arrive(&records([1]));
    device.spoil();
    let (returned, _) = times(&reader, -1);
    assert!(
        matches!(&returned, Return::Error(text) if text.contains("corrupted frame")),
        "{returned:?}"
    );
    device.arrive(&records([2]));
    assert_eq!(times(&reader, -1), (COUNT(1), vec![2]));
}

pub(crate) fn longer_than(length: u32) -> Vec<Classic> {
    vec![
        Classic::new(LD_W_LEN, 0),
        Classic::jump(JMP_JGT_K, length, 0, 1),
        Classic::keep(u32::MAX),
        Classic::keep(0),
    ]
}

#[test]
fn the_reader_filters_what_the_newest_filter_has_not_seen() {
    // Each case has four values: the number of the application's filter in the kernel, the number
    // of the filter that two packets have passed, how many of these two packets the reader
    // delivers, and the record's flags, which are 1 for packets that the host sends.
    let cases = [
        (Some(7), 7, 2, 0),
        (Some(7), 6, 1, 0),
        (Some(7), 0, 1, 0),
        (Some(0), 0, 1, 0),
        (None, 0, 1, 0),
        (None, 7, 1, 0),
        (Some(7), 7, 2, 1),
        (Some(7), 6, 1, 1),
        (Some(7), 0, 1, 1),
    ];
    for (number, passed, count, flags) in cases {
        let (device, input) = FakeProgram::new(TIMEOUT);
        let reader = Reader::new(input, &NONBLOCKING).unwrap();
        reader.set_filter(longer_than(70), number);
        let [rejected] = shared::own(&[0]);
        let mut kept = PublishedCounters::own();
        kept.rejected = Some(rejected.clone());
        reader.keep(0, kept);
        let let_in = |length| Written {
            filter: passed,
            flags,
            ..record(1, length)
        };
        for _ in 0..10 {
            device.arrive(&[let_in(60), let_in(80)]);
            assert_eq!(times(&reader, -1).0, COUNT(count), "{number:?} {passed}");
        }
        // The BPF program has counted the packets as received. If the kernel runs the new filter,
        // packets that the reader rejects stay counted, because they came before the filter was
        // set. Otherwise, and if the kernel ran no filter on a sent packet, the reader subtracts
        // them.
        let is_in_kernel = number.is_some_and(|number| number != 0) && (flags, passed) != (1, 0);
        let is_taken_back = count == 1 && !is_in_kernel;
        let expected = 10 * u64::from(is_taken_back);
        assert_eq!(reader.control().rejected(), expected);
        assert_eq!(rejected.get(), expected, "published");
    }
}

/// libpcap compiles a filter for a live handle under the assumption that the kernel has removed the
/// tag from the frame. The frames of the XDP engine contain the tag.
#[test]
fn a_filter_reads_a_tagged_frame_as_if_the_tag_were_beside_it() {
    let tagged_ipv4 = vec![
        Classic::new(LD_B_ABS, SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT),
        Classic::jump(JMP_JEQ_K, 1, 0, 7),
        Classic::new(LD_W_ABS, 10),
        Classic::jump(JMP_JEQ_K, 0x0a0b_0800, 0, 5),
        Classic::new(LD_H_ABS, 14),
        Classic::jump(JMP_JEQ_K, 0x4511, 0, 3),
        Classic::new(LD_W_LEN, 0),
        Classic::jump(JMP_JEQ_K, 18, 0, 1),
        Classic::keep(u32::MAX),
        Classic::keep(0),
    ];
    let (device, input) = FakeProgram::new(TIMEOUT);
    let reader = Reader::new(input, &NONBLOCKING).unwrap();
    reader.set_filter(tagged_ipv4, None);
    let addresses: Vec<u8> = (0..12).collect();
    let frame = |rest: &[u8]| Written {
        data: [&addresses, rest].concat(),
        ..record(1, 0)
    };
    let tagged = frame(&[0x81, 0, 0, 9, 8, 0, 0x45, 0x11, 1, 2]);
    let bare = frame(&[8, 0, 0x45, 0x11, 1, 2]);
    device.arrive(&[bare, tagged.clone()]);
    let mut got = Vec::new();
    dispatch(&reader, -1, |packet| got.push((packet.len, packet.data)));
    assert_eq!(got, [(22, tagged.data)], "with its tag, as it came");
}

/// The kernel cuts a packet to the bytes that the filter keeps, before it puts the tag back.
#[test]
fn a_filter_that_only_the_reader_runs_cuts_packets_as_the_kernel_does() {
    let whole = [(34, 34), (38, 38)];
    let cases = [
        (None, 20, [(20, 34), (24, 38)]),
        (None, 34, whole),
        (None, 12, [(12, 34), (16, 38)]),
        // The tag is lost with the bytes before it.
        (None, 11, [(11, 34), (11, 34)]),
        (Some(7), 20, whole),
        // The kernel has run another filter.
        (Some(6), 20, whole),
    ];
    for (number, bytes, expected) in cases {
        let (device, input) = FakeProgram::new(TIMEOUT);
        let reader = Reader::new(input, &NONBLOCKING).unwrap();
        reader.set_filter(vec![Classic::keep(bytes)], number);
        let addresses: Vec<u8> = (0..12).collect();
        let frame = |rest: &[u8]| Written {
            data: [&addresses, rest, &[5; 20]].concat(),
            filter: 7,
            ..record(1, 0)
        };
        device.arrive(&[frame(&[8, 0]), frame(&[0x81, 0, 0, 9, 8, 0])]);
        let mut got = Vec::new();
        dispatch(&reader, -1, |packet| {
            got.push((packet.data.len(), packet.len))
        });
        assert_eq!(got, expected, "{number:?} {bytes}");
    }
}

#[test]
fn packets_are_selected_by_where_they_go() {
    for (direction, expected) in [(Direction::In, 1), (Direction::Out, 2)] {
        let (device, input) = FakeProgram::new(TIMEOUT);
        let reader = Reader::new(input, &NONBLOCKING).unwrap();
        reader.control().set_direction(direction);
        let outgoing = Written {
            flags: 1,
            ..record(2, 60)
        };
        device.arrive(&[record(1, 60), outgoing]);
        assert_eq!(times(&reader, -1), (COUNT(1), vec![expected]));
    }
}

/// Returns the time until a descriptor is readable, or `None` if it is not readable within a
/// second.
fn wait_for(fd: RawFd) -> Option<Duration> {
    // SAFETY: the reader that owns the descriptor lives.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let begun = Instant::now();
    let found = events::poll(&[fd], Some(Duration::from_secs(1))).unwrap();
    found[0].then(|| begun.elapsed())
}

fn is_readable(fd: RawFd) -> bool {
    // SAFETY: the reader that owns the descriptor lives.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    events::poll(&[fd], Some(Duration::ZERO)).unwrap()[0]
}

#[test]
fn an_application_that_waits_by_itself_is_woken_for_a_packet() {
    let (device, input) = FakeProgram::new(TIMEOUT);
    let reader = Reader::new(input, &NONBLOCKING).unwrap();
    let fd = reader.control().selectable().unwrap();
    assert!(!is_readable(fd));
    for round in 1..4 {
        device.arrive(&records([round * 100_000]));
        assert!(is_readable(fd));
        assert_eq!(times(&reader, -1).0, COUNT(1));
        assert!(!is_readable(fd), "{round}");
        assert_eq!(times(&reader, -1).0, COUNT(0));
        assert!(!is_readable(fd), "{round}");
    }
    device.late.lock().unwrap().extend(records([500_000]));
    times(&reader, -1);
    assert!(is_readable(fd), "a packet came before the request to wake");
}

#[test]
fn what_a_read_has_left_is_readable() {
    let (device, input) = FakeProgram::new(TIMEOUT);
    let reader = Reader::new(input, &NONBLOCKING).unwrap();
    let fd = reader.control().selectable().unwrap();
    device.arrive(&records([1, 2, 3]));
    assert_eq!(times(&reader, 1).0, COUNT(1));
    assert!(is_readable(fd));
    assert_eq!(times(&reader, 1).0, COUNT(1));
    assert!(is_readable(fd));
    assert_eq!(times(&reader, -1).0, COUNT(1));
    assert!(!is_readable(fd));
}

#[test]
fn an_application_that_waits_for_many_packets_is_woken_in_a_millisecond() {
    let (device, input) = FakeProgram::new(TIMEOUT);
    let reader = Reader::new(input, &NONBLOCKING).unwrap();
    let fd = reader.control().selectable().unwrap();
    device.arrive(&records([1]));
    times(&reader, -1);
    // 100 packets within 1999 microseconds are 50 packets in a millisecond, so the reader requests
    // a wake-up after the bytes of 50 packets.
    device.arrive(&(1..=100).map(|it| record(it * 20, 60)).collect::<Vec<_>>());
    times(&reader, -1);
    let bytes = 100 * room_of(&record(1, 60)) * 1000 / 1999;
    assert_eq!(device.armed.lock().unwrap().last(), Some(&bytes));
    device.arrive(&records([2001]));
    assert!(wait_for(fd).is_some(), "the millisecond is over");
    times(&reader, -1);
    let many: Vec<_> = (1..=60).map(|it| record(2001 + it * 20, 60)).collect();
    device.arrive(&many);
    assert!(is_readable(fd), "enough have come");
}

/// Some applications ask for the descriptor but never wait on it. For them the reader must rest as
/// it does without a descriptor.
#[test]
fn an_application_that_asks_for_the_descriptor_and_does_not_wait_rests() {
    let (device, input) = FakeProgram::new(TIMEOUT);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    reader.control().selectable();
    for round in 0..2 {
        let packets: Vec<_> = (1..=100)
            .map(|it| record((round * 100 + it) * 20, 60))
            .collect();
        device.arrive(&packets);
        times(&reader, -1);
    }
    device.arrive(&records([4001]));
    let begun = Instant::now();
    assert_eq!(times(&reader, -1).0, COUNT(1));
    assert!(begun.elapsed() >= Duration::from_millis(1));
}

#[test]
fn immediate_mode_asks_for_each_packet() {
    let (device, input) = FakeProgram::new(IMMEDIATE);
    let reader = Reader::new(input, &NONBLOCKING).unwrap();
    reader.control().selectable();
    for round in 0..3 {
        let packets: Vec<_> = (0..100).map(|it| record(round * 1000 + it, 60)).collect();
        device.arrive(&packets);
        times(&reader, -1);
    }
    assert_eq!(*device.armed.lock().unwrap(), [1; 4]);
}

#[test]
fn records_merge_with_other_devices_by_time() {
    let (mut socket, blocks) = FakeDevice::new(true, Some(Duration::from_millis(10)));
    let (first, one) = FakeProgram::new(TIMEOUT);
    let (second, two) = FakeProgram::new(TIMEOUT);
    let reader = Reader::of_several(vec![blocks, one, two], &OPTIONS).unwrap();
    first.arrive(&records([1, 6]));
    socket.arrive(&[packet(2, 60), packet(4, 60)]);
    socket.arrive(&[packet(8, 60)]);
    second.arrive(&records([3, 5, 7]));
    let (returned, mut got) = times(&reader, -1);
    assert_eq!((returned, got.len()), (COUNT(8), 8));
    assert!(got.is_sorted());
    got.dedup();
    assert_eq!(got.len(), 8);
}

#[test]
fn each_of_several_devices_wakes_an_application_that_waits_by_itself() {
    let (first, one) = FakeProgram::new(TIMEOUT);
    let (second, two) = FakeProgram::new(TIMEOUT);
    let reader = Reader::of_several(vec![one, two], &NONBLOCKING).unwrap();
    let fd = reader.control().selectable().unwrap();
    for device in [&first, &second, &first] {
        assert!(!is_readable(fd));
        device.arrive(&records([9]));
        assert!(is_readable(fd));
        assert_eq!(times(&reader, -1), (COUNT(1), vec![9]));
    }
}

/// Other engines may deliver packets later, by a time-out. Records come at once, so the merge need
/// not hold a packet back for the time-out.
#[test]
fn a_packet_waits_for_other_devices_no_longer_than_it_must() {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let (device, one) = FakeProgram::new(Some(Duration::from_secs(60)));
    let (_idle, two) = FakeProgram::new(Some(Duration::from_secs(60)));
    let reader = Reader::of_several(vec![one, two], &OPTIONS).unwrap();
    let stamp = u64::try_from(now().as_nanos()).unwrap() - offset();
    device.arrive(&[written(stamp)]);
    let begun = now();
    assert_eq!(times(&reader, 1).0, COUNT(1));
    assert!(now() - begun < Duration::from_secs(30));
}

#[test]
fn who_holds_packets_back_is_woken_for_many_unless_it_is_in_a_hurry() {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    for (timeout, after) in [
        (TIMEOUT, vec![1 << 16; 2]),
        (None, vec![1 << 16; 2]),
        (IMMEDIATE, vec![1]),
    ] {
        let (device, one) = FakeProgram::new(timeout);
        let (idle, two) = FakeProgram::new(timeout);
        let reader = Reader::of_several(vec![one, two], &OPTIONS).unwrap();
        // The packet's stamp is in the future, so that the reader holds the packet back even if the
        // thread loses its CPU before the read. The reader does not hold back packets that are old.
        let stamp = now() + Duration::from_millis(500);
        let stamp = u64::try_from(stamp.as_nanos()).unwrap() - offset();
        device.arrive(&[written(stamp)]);
        assert_eq!(times(&reader, 1).0, COUNT(1));
        let armed = [&device, &idle].map(|it| it.armed.lock().unwrap().first().copied());
        let armed: Vec<u64> = armed.into_iter().flatten().collect();
        assert_eq!(armed, after, "{timeout:?}");
    }
}

/// The next packet comes only after the reader has taken this one. So if a wake-up were lost, no
/// later wake-up would replace it, and the test would fail.
#[test]
fn each_packet_wakes_whenever_it_comes() {
    let (device, input) = FakeProgram::new(None);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    let (send, receive) = mpsc::channel();
    let reader = &reader;
    thread::scope(|scope| {
        scope.spawn(move || {
            // The packets' times are far apart, so that the reader waits for a wake-up instead of
            // resting.
            for round in 1..=3000 {
                device.arrive(&records([round * 10_000]));
                if receive.recv_timeout(Duration::from_secs(120)).is_err() {
                    reader.control().break_loop();
                }
            }
        });
        for _ in 0..3000 {
            assert_eq!(times(reader, 1).0, COUNT(1));
            send.send(()).unwrap();
        }
    });
}
