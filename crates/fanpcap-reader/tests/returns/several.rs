//! A reader of several devices. It must deliver packets in time order, even if one of the devices
//! has no packets, is down or is gone.

use super::fake::{
    FakeDevice, NONBLOCKING, OPTIONS, Return, await_down, packet, times, times_until_later,
};
use super::kernel::Packet;
use fanpcap_reader::{Input, LinkState, Reader};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{iter, thread};

const TIMEOUT: Option<Duration> = Some(Duration::from_millis(10));

const COUNT: fn(i32) -> Return = Return::Count;

fn devices(layouts: &[bool], timeout: Option<Duration>) -> (Vec<FakeDevice>, Vec<Input>) {
    let devices = layouts.iter();
    devices
        .map(|&is_v3| FakeDevice::new(is_v3, timeout))
        .unzip()
}

fn now() -> Packet {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Packet {
        seconds: u32::try_from(now.as_secs()).unwrap(),
        nanoseconds: now.subsec_nanos(),
        ..packet(0, 60)
    }
}

#[test]
fn packets_come_in_the_order_of_time() {
    let (mut devices, inputs) = devices(&[true, false, true], TIMEOUT);
    let reader = Reader::of_several(inputs, &OPTIONS).unwrap();
    devices[0].arrive(&[packet(1, 60), packet(4, 60)]);
    devices[0].arrive(&[packet(7, 60)]);
    devices[1].arrive(&[packet(2, 60), packet(5, 60), packet(8, 60)]);
    devices[2].arrive(&[packet(3, 60), packet(6, 60), packet(9, 60)]);
    let all = (1..10).collect();
    assert_eq!(times(&reader, -1), (COUNT(9), all));
}

#[test]
fn a_packet_waits_for_earlier_ones_of_other_devices() {
    // The time-out is long, because on a busy machine the earlier packet may come late.
    let (mut devices, inputs) = devices(&[true, true], Some(Duration::from_secs(60)));
    let reader = Reader::of_several(inputs, &OPTIONS).unwrap();
    let (early, late, last) = (now(), now(), now());
    let expected = [&early, &late].map(|packet| i64::from(packet.nanoseconds / 1000));
    devices[1].arrive(&[late]);
    let mut first = devices.remove(0);
    let seen = thread::scope(|scope| {
        let earlier = scope.spawn(move || {
            thread::sleep(Duration::from_millis(2));
            first.arrive(&[early, last]);
            first
        });
        let mut seen = times(&reader, 1).1;
        seen.extend(times(&reader, 1).1);
        drop(earlier.join().unwrap());
        seen
    });
    assert_eq!(seen, expected);
}

#[test]
fn a_packet_does_not_wait_for_long() {
    let (mut devices, inputs) = devices(&[true, true], TIMEOUT);
    let reader = Reader::of_several(inputs, &OPTIONS).unwrap();
    let alone = now();
    let time = i64::from(alone.nanoseconds / 1000);
    devices[1].arrive(&[alone]);
    assert_eq!(times(&reader, 1), (COUNT(1), vec![time]));
}

#[test]
fn counts_and_breaks_are_those_of_one_device() {
    let (mut devices, inputs) = devices(&[true, false], TIMEOUT);
    let reader = Reader::of_several(inputs, &OPTIONS).unwrap();
    devices[0].arrive(&[packet(1, 60), packet(3, 60)]);
    devices[1].arrive(&[packet(2, 60)]);
    assert_eq!(times(&reader, 2), (COUNT(2), vec![1, 2]));
    reader.control().break_loop();
    assert_eq!(times(&reader, -1), (Return::Break, vec![]));
    assert_eq!(times(&reader, -1), (COUNT(1), vec![3]));
}

#[test]
fn a_read_that_does_not_wait_ends_empty() {
    let (_devices, inputs) = devices(&[true, false], TIMEOUT);
    let reader = Reader::of_several(inputs, &NONBLOCKING).unwrap();
    assert_eq!(times(&reader, -1), (COUNT(0), vec![]));
}

#[test]
fn packets_that_are_held_back_come_before_an_error() {
    let (mut devices, inputs) = devices(&[true, true], Some(Duration::from_secs(5)));
    let reader = Reader::of_several(inputs, &OPTIONS).unwrap();
    let held = now();
    let time = i64::from(held.nanoseconds / 1000);
    devices[0].arrive(&[held]);
    let failing = [Err("gone"), Err("gone")];
    devices[1].port.checks.lock().unwrap().extend(failing);
    assert_eq!(times(&reader, -1), (COUNT(1), vec![time]));
    let gone = Return::Error("gone".to_owned());
    assert_eq!(times(&reader, -1), (gone, vec![]));
}

#[test]
fn a_device_that_is_down_does_not_keep_the_others() {
    let (mut devices, inputs) = devices(&[true, true], TIMEOUT);
    let reader = Reader::of_several(inputs, &OPTIONS).unwrap();
    let down = &devices[1].port;
    down.checks.lock().unwrap().push_back(Ok(LinkState::Down));
    down.links
        .lock()
        .unwrap()
        .extend(iter::repeat_n(Ok(LinkState::Down), 100_000));
    let seen = times_until_later(&reader, devices.remove(0), |_| await_down(&reader, true));
    assert_eq!(seen, (COUNT(1), vec![1]));
}

#[test]
fn one_descriptor_stands_for_several_devices() {
    let (_device, input) = FakeDevice::new(true, TIMEOUT);
    assert_eq!(
        Reader::new(input, &OPTIONS).unwrap().control().selectable(),
        None
    );
    let (mut devices, inputs) = devices(&[true, true], TIMEOUT);
    let reader = Reader::of_several(inputs, &OPTIONS).unwrap();
    assert!(reader.control().selectable().is_some());
    devices[0].arrive(&[packet(1, 60)]);
    devices[1].arrive(&[packet(2, 60)]);
    assert_eq!(times(&reader, -1), (COUNT(2), vec![1, 2]));
}

#[test]
fn a_handle_has_at_most_64_devices() {
    let (_devices, inputs) = devices(&[false; 65], TIMEOUT);
    let error = Reader::of_several(inputs, &OPTIONS).err().unwrap();
    assert_eq!(error.raw_os_error(), Some(7));
}
