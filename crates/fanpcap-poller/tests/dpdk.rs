//! The source `dpdk`, on a plugin without DPDK that invents its devices.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use anyhow::{Result, ensure};
use fanpcap_dpdk::{DeviceName, EalOptions, Plugin};
use fanpcap_linux::wait::clock::monotonic_ns;
use fanpcap_poller::dpdk::{self, DpdkSource, Opened};
use fanpcap_poller::queue::{Idle, Queue};
use fanpcap_poller::{Burst, Source, SourceCounts, SourceError};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::traffic::sequence_of;
use fanpcap_testkit::{Scratch, dpdk as plugins};
use std::thread;
use std::time::Duration;

/// Takes all packets of a source, and what its packets have beside their bytes.
fn drain(source: &mut DpdkSource) -> Vec<(Option<u64>, bool, Option<u64>)> {
    let mut all = Vec::new();
    loop {
        let mut burst = Burst::of(7);
        source.burst(&mut burst).unwrap();
        let packets = burst.packets();
        if packets.is_empty() {
            return all;
        }
        all.extend(packets.iter().map(|it| {
            let sequence = sequence_of(it.frame.bytes);
            (sequence, it.tag().is_some(), it.stamp_ns)
        }));
        source.release();
    }
}

/// A process can start DPDK once, so this is one test.
#[test]
fn a_device_of_dpdk_is_a_source() -> Result<()> {
    let scratch = Scratch::new()?;
    let eal = Plugin::load(&plugins::stand_in(&scratch, &[])?)?.begin(&EalOptions {
        ordinary_mib: Some(64),
        has_pci: false,
        cpu: 0,
        prefix: "fanpcap-test".to_owned(),
        more: Vec::new(),
    })?;
    let open = |text: &str, queues| {
        let name = DeviceName::parse(text).unwrap();
        dpdk::open(eal, &name, queues)
    };
    counts_and_states(open("net_one0,count=2000,missed=5,errors=4,iface=lo", 2)?)?;
    sent_frames(open("net_one0,interrupts", 1)?)?;
    stamps(open("net_one0,count=1000", 1)?)?;
    sleeps(open("net_one0", 1)?)
}

fn counts_and_states(mut opened: Opened) -> Result<()> {
    for (number, source) in (0_u16..).zip(&mut opened.sources) {
        ensure!(source.queue() == number && source.has_filled(1) && !source.has_filled(2));
        let packets = drain(source);
        ensure!(packets.len() == 2000);
        ensure!(
            (0..)
                .zip(&packets)
                .all(|(at, it)| it.0 == Some(at) && !it.1)
        );
        let missed = if number == 0 { 5 } else { 0 };
        let expected = SourceCounts {
            received: 2000 + missed,
            dropped: missed,
            faulty: if number == 0 { 4 } else { 0 },
            ..SourceCounts::default()
        };
        ensure!(source.counts() == expected, "{:?}", source.counts());
        source.check()?;
    }
    opened.sender.send(&[1])?;
    let down = opened.sources[0].check();
    ensure!(matches!(down, Err(SourceError::Down)));
    opened.sources[1].check()?;
    opened.sender.send(&[2])?;
    ensure!(matches!(opened.sources[0].check(), Err(SourceError::Gone)));
    Ok(())
}

fn sent_frames(mut opened: Opened) -> Result<()> {
    let source = &mut opened.sources[0];
    ensure!(drain(source).is_empty());
    ensure!(source.begin_wait(), "the caller looks once more");
    ensure!(source.transmit(&[3; 8000])?);
    let waits = source.waits_on().expect("interrupts");
    ensure!(plugins::is_readable(waits)?);
    source.end_wait();
    let packets = drain(source);
    ensure!(packets.len() == 1 && packets[0].1, "{packets:?}");
    ensure!(!plugins::is_readable(
        source.waits_on().expect("interrupts")
    )?);
    Ok(())
}

/// The stand-in's clock runs 1000 ticks a reading, and its packets come at tick 5000.
fn stamps(mut opened: Opened) -> Result<()> {
    let source = &mut opened.sources[0];
    let mut burst = Burst::of(5);
    source.burst(&mut burst)?;
    ensure!(
        burst.packets().iter().all(|it| it.stamp_ns.is_none()),
        "one reading"
    );
    source.release();
    await_for("another reading", LIMIT, || {
        thread::sleep(Duration::from_millis(10));
        let mut burst = Burst::of(1);
        source.burst(&mut burst)?;
        let stamp = burst.packets()[0].stamp_ns;
        Ok(stamp
            .filter(|it| it.abs_diff(monotonic_ns()) < 60_000_000_000)
            .map(drop))
    })
}

/// A queue without descriptor sleeps for short times, and wakes for a change.
fn sleeps(mut opened: Opened) -> Result<()> {
    let source = opened.sources.remove(0);
    ensure!(source.waits_on().is_none());
    let queue = Queue::start(Box::new(source), Idle::Sleep, || {})?;
    ensure!(opened.sender.send(&[5; 60])?);
    await_for("the packet", LIMIT, || {
        let packets = queue.change(|it| it.fan_out.packets());
        Ok((packets == Some(1)).then_some(()))
    })
}
