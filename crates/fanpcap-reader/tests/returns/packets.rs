//! The tests check that the reader cuts, tags, selects, filters and counts packets.

use super::fake::{FakeDevice, Got, LO, NONBLOCKING, OPTIONS, Return, dispatch, packet, times};
use super::kernel::Packet;
use super::program::FakeProgram;
use super::records::TIMEOUT;
use fanpcap_bpf::Classic;
use fanpcap_bpf::classic::opcode::*;
use fanpcap_reader::{Direction, Options, PortStatistics, PublishedCounters, Reader};
use std::time::Duration;

/// `PACKET_OUTGOING`.
const OUTGOING: u8 = 4;

fn read(reader: &Reader) -> Vec<Got> {
    let mut got = Vec::new();
    dispatch(reader, -1, |packet| got.push(packet));
    got
}

#[test]
fn a_packet_is_cut_to_the_snapshot_length() {
    for is_v3 in [true, false] {
        let (mut device, input) = FakeDevice::new(is_v3, None);
        let options = Options {
            snaplen: 60,
            ..NONBLOCKING
        };
        let reader = Reader::new(input, &options).unwrap();
        let cut = Packet {
            cut: 900,
            ..packet(2, 50)
        };
        device.arrive(&[packet(1, 100), cut]);
        let got = read(&reader);
        let sizes: Vec<_> = got.iter().map(|got| (got.data.len(), got.len)).collect();
        assert_eq!(sizes, [(60, 100), (50, 950)]);
        assert_eq!(got[0].data, (0..60).collect::<Vec<u8>>());
    }
}

#[test]
fn stamps_are_as_fine_as_asked() {
    for (nanoseconds, fraction) in [(false, 123), (true, 123_456)] {
        let (mut device, input) = FakeDevice::new(true, None);
        let options = Options {
            nanoseconds,
            ..NONBLOCKING
        };
        let reader = Reader::new(input, &options).unwrap();
        device.arrive(&[Packet {
            nanoseconds: 123_456,
            ..packet(0, 60)
        }]);
        let got = read(&reader);
        assert_eq!((got[0].seconds, got[0].fraction), (7, fraction));
    }
}

#[test]
fn a_vlan_tag_goes_back_in_where_the_link_type_has_it() {
    let (mut device, input) = FakeDevice::new(true, None);
    let reader = Reader::new(input, &NONBLOCKING).unwrap();
    let tagged = || Packet {
        vlan: Some((0x8100, 7)),
        ..packet(0, 20)
    };
    device.arrive(&[tagged()]);
    assert_eq!(read(&reader)[0].len, 20);
    reader.control().set_tag_at(Some(12));
    device.arrive(&[tagged()]);
    let got = read(&reader);
    assert_eq!(
        (got[0].len, &got[0].data[10..18]),
        (24, &[10, 11, 0x81, 0, 0, 7, 12, 13][..])
    );
}

#[test]
fn packets_are_selected_by_where_they_go() {
    let outgoing = |microseconds, ifindex| Packet {
        pkttype: OUTGOING,
        ifindex,
        ..packet(microseconds, 60)
    };
    let cases = [
        (Direction::InOut, vec![1, 2]),
        (Direction::In, vec![1]),
        (Direction::Out, vec![2]),
    ];
    for (direction, expected) in cases {
        let (mut device, input) = FakeDevice::new(true, None);
        let reader = Reader::new(input, &NONBLOCKING).unwrap();
        reader.control().set_direction(direction);
        // The reader drops outgoing packets on lo, because each of them comes a second time, as an
        // incoming packet.
        device.arrive(&[packet(1, 60), outgoing(2, 2), outgoing(3, LO)]);
        let count = expected.len() as i32;
        assert_eq!(times(&reader, -1), (Return::Count(count), expected));
    }
}

fn longer_than(length: u32) -> Vec<Classic> {
    vec![
        Classic::new(LD_W_LEN, 0),
        Classic::jump(JMP_JGT_K, length, 0, 1),
        Classic::keep(u32::MAX),
        Classic::keep(0),
    ]
}

#[test]
fn packets_that_were_in_the_ring_before_a_filter_are_filtered() {
    for is_v3 in [true, false] {
        let (mut device, input) = FakeDevice::new(is_v3, None);
        let reader = Reader::new(input, &NONBLOCKING).unwrap();
        device.arrive(&[packet(1, 60), packet(2, 80)]);
        reader.set_filter(longer_than(70), Some(0));
        assert_eq!(times(&reader, -1), (Return::Count(1), vec![2]), "{is_v3}");
        // The kernel runs the filter on later packets, so the reader soon stops filtering. The fake
        // kernel of this test runs no filter. So after that, a packet that the filter would reject
        // passes.
        let passes = |round: &u32| {
            device.arrive(&[packet(*round, 60)]);
            times(&reader, -1).0 == Return::Count(1)
        };
        let first = (0..100).find(passes);
        assert!(first.is_some_and(|first| first > 0), "{is_v3} {first:?}");
    }
}

#[test]
fn a_filter_that_the_kernel_does_not_take_holds_for_good() {
    for is_v3 in [true, false] {
        let (mut device, input) = FakeDevice::new(is_v3, None);
        let reader = Reader::new(input, &NONBLOCKING).unwrap();
        reader.set_filter(longer_than(70), None);
        for round in 0..100 {
            device.arrive(&[packet(round, 60), packet(round, 80)]);
            let (returned, _) = times(&reader, -1);
            assert_eq!(returned, Return::Count(1), "{is_v3} {round}");
        }
    }
}

#[test]
fn a_filter_can_be_changed_in_a_callback() {
    for is_v3 in [true, false] {
        let (mut device, input) = FakeDevice::new(is_v3, None);
        let reader = Reader::new(input, &NONBLOCKING).unwrap();
        device.arrive(&[packet(1, 60), packet(2, 60), packet(3, 80)]);
        let mut got = Vec::new();
        let returned = dispatch(&reader, -1, |packet| {
            got.push(packet.fraction);
            reader.set_filter(longer_than(70), Some(0));
        });
        assert_eq!((returned, got), (Return::Count(2), vec![1, 3]), "{is_v3}");
    }
}

#[test]
fn what_was_taken_and_counted_is_published() {
    let (mut device, input) = FakeDevice::new(true, None);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    let kept = PublishedCounters::own();
    reader.keep(0, kept.clone());
    *device.port.statistics.lock().unwrap() = PortStatistics {
        received: 40,
        dropped: 2,
    };
    device.arrive(&[packet(1, 60), packet(2, 60)]);
    let position = &kept.position;
    let mut seen = Vec::new();
    dispatch(&reader, 2, |_| {
        seen.push((position.taken.get(), position.mark.get()))
    });
    let first_block = 1 << 32;
    let expected = [(1, first_block), (2, first_block)];
    assert_eq!(seen, expected, "before each packet is delivered");
    assert_eq!(position.mark.get(), (2 << 32) | 2, "the block went back");
    // The reader reads the kernel's counters for the first time 100 ms after the member has joined.
    std::thread::sleep(std::time::Duration::from_millis(120));
    device.arrive(&[packet(3, 60)]);
    dispatch(&reader, -1, |_| {});
    assert_eq!(position.mark.get(), (3 << 32) | 3, "two blocks went back");
    let words = [
        &position.taken,
        &kept.received,
        &kept.dropped,
        &kept.read_taken,
    ];
    assert_eq!(words.map(|word| word.get()), [3, 40, 2, 3]);
}

/// On packets that came before the filter was set, the kernel has run no filter. On packet sockets
/// they come whole, as with libpcap, also if the handle has a device of an engine too.
#[test]
fn packets_of_a_packet_socket_that_came_before_the_filter_are_not_cut() {
    let (mut socket, blocks) = FakeDevice::new(true, Some(Duration::from_millis(10)));
    let (_device, pool) = FakeProgram::new(TIMEOUT);
    let reader = Reader::of_several(vec![blocks, pool], &NONBLOCKING).unwrap();
    socket.arrive(&[packet(1, 60)]);
    reader.set_filter(vec![Classic::keep(20)], Some(7));
    let mut lens = Vec::new();
    dispatch(&reader, -1, |packet| lens.push(packet.data.len()));
    assert_eq!(lens, [60]);
}
