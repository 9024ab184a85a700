//! Reads of one device. The tests check when a read waits, and how it ends: with packets, without a
//! packet, by a break, or by an error.

use super::fake::{
    BLOCKS, FakeDevice, LATER, NONBLOCKING, OPTIONS, Return, await_down, dispatch, packet, times,
    times_until_later,
};
use fanpcap_reader::{LinkState, Reader};
use std::time::Duration;
use std::{iter, thread};

const TIMEOUT: Option<Duration> = Some(Duration::from_millis(10));

const COUNT: fn(i32) -> Return = Return::Count;

fn error(text: &str) -> Return {
    Return::Error(text.to_owned())
}

#[test]
fn a_read_delivers_what_is_there() {
    for is_v3 in [true, false] {
        let (mut device, input) = FakeDevice::new(is_v3, TIMEOUT);
        let reader = Reader::new(input, &OPTIONS).unwrap();
        device.arrive(&[packet(1, 60), packet(2, 60), packet(3, 60)]);
        assert_eq!(times(&reader, -1), (COUNT(3), vec![1, 2, 3]), "{is_v3}");
        device.arrive(&[packet(4, 60)]);
        assert_eq!(times(&reader, 0), (COUNT(1), vec![4]), "{is_v3}");
    }
}

#[test]
fn a_read_delivers_no_more_than_it_may() {
    for is_v3 in [true, false] {
        let (mut device, input) = FakeDevice::new(is_v3, TIMEOUT);
        let reader = Reader::new(input, &OPTIONS).unwrap();
        device.arrive(&[packet(1, 60), packet(2, 60), packet(3, 60)]);
        assert_eq!(times(&reader, 2), (COUNT(2), vec![1, 2]), "{is_v3}");
        assert_eq!(times(&reader, 1), (COUNT(1), vec![3]), "{is_v3}");
    }
}

#[test]
fn the_ring_goes_round() {
    for is_v3 in [true, false] {
        let (mut device, input) = FakeDevice::new(is_v3, TIMEOUT);
        let reader = Reader::new(input, &OPTIONS).unwrap();
        for round in 0..3 * BLOCKS as u32 {
            device.arrive(&[packet(round, 60), packet(round, 60)]);
            let both = vec![round.into(); 2];
            assert_eq!(times(&reader, -1), (COUNT(2), both), "{is_v3}");
        }
    }
}

#[test]
fn a_read_ends_empty_with_the_time_out() {
    let (mut device, input) = FakeDevice::new(true, TIMEOUT);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    // The kernel closes a block without packets when the block's timer expires.
    device.arrive(&[]);
    assert_eq!(times(&reader, -1), (COUNT(0), vec![]));
}

#[test]
fn without_a_time_out_a_read_waits_for_packets() {
    let (mut device, input) = FakeDevice::new(true, None);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    device.arrive(&[]);
    let seen = times_until_later(&reader, device, |_| {});
    assert_eq!(seen, (COUNT(1), vec![1]));
}

#[test]
fn a_read_that_does_not_wait_ends_empty() {
    for is_v3 in [true, false] {
        let (mut device, input) = FakeDevice::new(is_v3, None);
        let reader = Reader::new(input, &NONBLOCKING).unwrap();
        assert_eq!(times(&reader, -1), (COUNT(0), vec![]), "{is_v3}");
        device.arrive(&[packet(1, 60)]);
        assert_eq!(times(&reader, -1), (COUNT(1), vec![1]), "{is_v3}");
        assert_eq!(times(&reader, -1), (COUNT(0), vec![]), "{is_v3}");
    }
}

#[test]
fn whether_a_read_waits_can_be_changed() {
    let (_device, input) = FakeDevice::new(false, TIMEOUT);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    reader.control().set_nonblocking(true);
    assert_eq!(times(&reader, -1), (COUNT(0), vec![]));
}

#[test]
fn a_break_before_the_read_ends_it_once() {
    let (mut device, input) = FakeDevice::new(true, TIMEOUT);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    device.arrive(&[packet(1, 60)]);
    reader.control().break_loop();
    assert_eq!(times(&reader, -1), (Return::Break, vec![]));
    assert_eq!(times(&reader, -1), (COUNT(1), vec![1]));
}

#[test]
fn in_immediate_mode_a_break_is_seen_after_a_packet() {
    // The system's library does the same (`pcap_read_linux_mmap_v2()`).
    let (mut device, input) = FakeDevice::new(false, TIMEOUT);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    device.arrive(&[packet(1, 60), packet(2, 60)]);
    reader.control().break_loop();
    assert_eq!(times(&reader, -1), (Return::Break, vec![1]));
    assert_eq!(times(&reader, -1), (COUNT(1), vec![2]));
}

#[test]
fn a_break_in_a_callback_loses_no_packet() {
    for is_v3 in [true, false] {
        let (mut device, input) = FakeDevice::new(is_v3, TIMEOUT);
        let reader = Reader::new(input, &OPTIONS).unwrap();
        device.arrive(&[packet(1, 60), packet(2, 60), packet(3, 60)]);
        let mut seen = 0;
        let returned = dispatch(&reader, -1, |_| {
            seen += 1;
            if seen == 2 {
                reader.control().break_loop();
            }
        });
        assert_eq!((returned, seen), (Return::Break, 2), "{is_v3}");
        assert_eq!(times(&reader, -1), (COUNT(1), vec![3]), "{is_v3}");
    }
}

#[test]
fn a_break_ends_a_wait() {
    for is_v3 in [true, false] {
        let (_device, input) = FakeDevice::new(is_v3, None);
        let reader = Reader::new(input, &OPTIONS).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(LATER);
                reader.control().break_loop();
            });
            assert_eq!(times(&reader, -1), (Return::Break, vec![]), "{is_v3}");
        });
    }
}

#[test]
fn a_nudge_ends_no_read() {
    let (device, input) = FakeDevice::new(true, TIMEOUT);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    reader.control().nudge();
    let seen = times_until_later(&reader, device, |_| {});
    assert_eq!(seen, (COUNT(1), vec![1]));
}

#[test]
fn a_read_fails_with_what_its_port_says() {
    for is_v3 in [true, false] {
        for text in ["Hangup on packet socket", "The interface disappeared"] {
            let (device, input) = FakeDevice::new(is_v3, TIMEOUT);
            let reader = Reader::new(input, &OPTIONS).unwrap();
            device.port.then(Err(text));
            assert_eq!(times(&reader, -1), (error(text), vec![]), "{is_v3}");
        }
    }
}

#[test]
fn packets_come_before_an_error() {
    let (mut device, input) = FakeDevice::new(true, TIMEOUT);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    device.arrive(&[packet(1, 60)]);
    device.port.then(Err("no more"));
    assert_eq!(times(&reader, -1), (COUNT(1), vec![1]));
    assert_eq!(times(&reader, -1), (error("no more"), vec![]));
}

#[test]
fn a_device_that_is_down_and_up_again_ends_no_read() {
    let (device, input) = FakeDevice::new(true, TIMEOUT);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    device.port.then(Ok(LinkState::Down));
    // The reader takes one answer at each check. These answers are enough until the reader has
    // noticed that the device is down.
    let links = iter::repeat_n(Ok(LinkState::Down), 100_000);
    device.port.links.lock().unwrap().extend(links);
    let seen = times_until_later(&reader, device, |device| {
        await_down(&reader, true);
        *device.port.links.lock().unwrap() = [Ok(LinkState::Down), Ok(LinkState::Up)].into();
        await_down(&reader, false);
        thread::sleep(LATER);
        assert!(!reader.control().is_net_down());
    });
    assert_eq!(seen, (COUNT(1), vec![1]));
}

#[test]
fn a_device_that_is_gone_fails_the_read() {
    let (device, input) = FakeDevice::new(false, TIMEOUT);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    device.port.then(Ok(LinkState::Down));
    let links = [Ok(LinkState::Down), Ok(LinkState::Down), Err("gone")];
    device.port.links.lock().unwrap().extend(links);
    assert_eq!(times(&reader, -1), (error("gone"), vec![]));
}

#[test]
fn packets_in_a_block_that_is_not_closed_come_before_the_device_is_gone() {
    let (mut device, input) = FakeDevice::new(true, None);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    device.begin_block(&[packet(1, 60), packet(2, 60)]);
    device.port.then(Ok(LinkState::Down));
    let links = iter::once(Ok(LinkState::Down)).chain(iter::repeat_n(Err("gone"), 4));
    device.port.links.lock().unwrap().extend(links);
    assert_eq!(times(&reader, 1), (COUNT(1), vec![1]));
    assert_eq!(times(&reader, -1), (COUNT(1), vec![2]));
    assert_eq!(times(&reader, -1), (error("gone"), vec![]));
}

#[test]
fn whoever_waits_by_itself_gets_the_last_packets_and_the_error_in_one_read() {
    let (mut device, input) = FakeDevice::new(true, None);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    assert_eq!(reader.control().selectable(), None);
    device.begin_block(&[packet(1, 60)]);
    device.port.then(Ok(LinkState::Down));
    let links = iter::repeat_n(Err("gone"), 4);
    device.port.links.lock().unwrap().extend(links);
    assert_eq!(times(&reader, -1), (error("gone"), vec![1]));
}

#[test]
fn a_ring_that_no_kernel_writes_fails_the_read() {
    for is_v3 in [true, false] {
        let (mut device, input) = FakeDevice::new(is_v3, TIMEOUT);
        let reader = Reader::new(input, &OPTIONS).unwrap();
        device.arrive(&[packet(1, 60)]);
        device.spoil();
        let (returned, _) = times(&reader, -1);
        let expected = "corrupted frame on kernel ring: mac offset 65535 + caplen 60 > frame len ";
        let Return::Error(text) = returned else {
            panic!("{returned:?}");
        };
        assert!(text.starts_with(expected), "{text}");
    }
}
