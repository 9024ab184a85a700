//! The plugin's interface, on a plugin without DPDK that invents its devices (`stand_in.c`).
#![forbid(unsafe_code)]

use anyhow::{Result, ensure};
use fanpcap_dpdk::{
    BeginError, DeviceName, EalOptions, LoadError, OpenError, Plugin, PortOptions, PortState,
};
use fanpcap_testkit::traffic::sequence_of;
use fanpcap_testkit::{Scratch, dpdk};
use std::collections::BTreeSet;
use std::fs;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const OPTIONS: PortOptions = PortOptions {
    queues: 1,
    descriptors: 512,
    buffers: 1023,
    cache: 0,
    mtu: 9000,
};

fn eal_options(more: &[&str]) -> EalOptions {
    EalOptions {
        ordinary_mib: Some(64),
        has_pci: false,
        cpu: 0,
        prefix: "fanpcap-test".to_owned(),
        more: more.iter().map(|it| (*it).to_owned()).collect(),
    }
}

#[test]
fn a_file_that_is_no_plugin_of_this_version_is_refused() -> Result<()> {
    let scratch = Scratch::new()?;
    let absent = scratch.file("absent.so");
    let error = Plugin::load(&absent).unwrap_err();
    ensure!(error == LoadError::Missing(absent));
    ensure!(
        error.to_string().contains("package fanpcap-dpdk"),
        "{error}"
    );
    let text = scratch.file("text.so");
    fs::write(&text, "no object")?;
    let error = Plugin::load(&text).unwrap_err();
    ensure!(matches!(error, LoadError::Libraries(..)), "{error}");
    let other = dpdk::compile("int x;", &scratch, &[])?;
    let error = Plugin::load(&other).unwrap_err();
    ensure!(error == LoadError::NoPlugin(other));
    let later = dpdk::stand_in(&scratch, &["-DSTAND_IN_VERSION=77"])?;
    let error = Plugin::load(&later).unwrap_err();
    ensure!(error == LoadError::Version(later, 77));
    ensure!(error.to_string().contains("of the same version"), "{error}");
    Ok(())
}

/// A process can start DPDK once, so this is one test.
#[test]
fn packets_are_lent_and_given_back() -> Result<()> {
    let scratch = Scratch::new()?;
    let plugin = Plugin::load(&dpdk::stand_in(&scratch, &[])?)?;
    ensure!(plugin.runs() == "stand-in for DPDK");
    let eal = plugin.begin(&eal_options(&[]))?;
    let again = plugin.begin(&eal_options(&[])).unwrap_err();
    ensure!(matches!(again, BeginError::Twice));

    let open = |text: &str, queues| {
        eal.open(
            &DeviceName::parse(text).unwrap(),
            PortOptions { queues, ..OPTIONS },
        )
    };
    let error = open("net_absent0", 1).unwrap_err();
    ensure!(
        error.to_string().contains("(net_absent0 of bus vdev)"),
        "{error}"
    );
    let error = open("net_forbidden0", 1).unwrap_err();
    ensure!(matches!(error, OpenError::Permission(_)), "{error}");
    let error = open("0000:01:00.0", 5).unwrap_err();
    ensure!(matches!(error, OpenError::Queues(4)), "{error}");

    // The plugin ends the process if two threads change devices at once.
    thread::scope(|scope| {
        let opening = || (0..20).for_each(|_| drop(open("net_one0", 1).unwrap()));
        for _ in 0..4 {
            scope.spawn(opening);
        }
    });
    lends(open("net_one0,count=130,missed=3", 2)?)?;
    comes_back(open("net_one0,interrupts", 1)?)?;
    let (sender, receiver) = mpsc::channel();
    eal.in_own_thread(move || {
        let _ = sender.send(thread::current().id());
    })?;
    ensure!(receiver.recv_timeout(Duration::from_secs(60))? != thread::current().id());
    Ok(())
}

/// Each packet of two queues is lent once, in bursts.
fn lends(opened: fanpcap_dpdk::Opened) -> Result<()> {
    let facts = &opened.facts;
    ensure!(
        (facts.driver.as_str(), facts.mtu) == ("stand-in", Some(9000)),
        "{facts:?}"
    );
    ensure!(
        facts.is_symmetric && facts.has_stamps && !facts.has_interrupts,
        "{facts:?}"
    );
    let mut seen = BTreeSet::new();
    for (number, mut queue) in (0..).zip(opened.queues) {
        ensure!(queue.descriptor().is_none());
        let mut sizes = Vec::new();
        while sizes.last() != Some(&0) {
            let mut size = 0;
            queue.burst(50, |packet| {
                let sequence = sequence_of(packet.bytes).expect("a number");
                assert_eq!(
                    (packet.bytes.len(), packet.wire_len, packet.tci),
                    (60, 60, None)
                );
                assert_eq!(u64::from(packet.hash), 1000 + sequence);
                assert_eq!(packet.stamp, Some(5000 + sequence));
                seen.insert((packet.bytes[37], sequence));
                size += 1;
            });
            sizes.push(size);
            ensure!(queue.counts()?.no_buffers == size);
            queue.release();
            ensure!(queue.counts()?.no_buffers == 0, "not given back");
        }
        ensure!(sizes == [50, 50, 30, 0], "{sizes:?}");
        let counts = queue.counts()?;
        ensure!(
            (counts.received, counts.missed) == (130 * (number + 1), 3),
            "{counts:?}"
        );
        let mut filled = 0;
        queue.fill(|frame| {
            frame[0] = 1;
            filled += 1;
        })?;
        ensure!(filled == 64 && queue.clock()? > 0);
        // The queue is dropped while packets are lent, if there are any.
        queue.burst(50, |_| {});
    }
    ensure!(seen.len() == 260);
    Ok(())
}

/// A frame that is sent comes back, wakes the queue, and has a tag.
fn comes_back(mut opened: fanpcap_dpdk::Opened) -> Result<()> {
    let mut queue = opened.queues.remove(0);
    queue.set_interrupt(true);
    let is_readable = |queue: &fanpcap_dpdk::Queue| {
        let fd = queue.descriptor();
        fanpcap_testkit::dpdk::is_readable(fd.expect("interrupts"))
    };
    ensure!(!is_readable(&queue)?);
    let frame = vec![5; 8000];
    ensure!(opened.sender.send(&frame)?);
    ensure!(!opened.sender.send(&frame)?, "no room");
    ensure!(is_readable(&queue)?);
    queue.set_interrupt(false);
    ensure!(!is_readable(&queue)?);
    let mut came = Vec::new();
    queue.burst(64, |packet| came.push((packet.bytes == frame, packet.tci)));
    ensure!(came == [(true, Some(7))], "{came:?}");
    ensure!(opened.sender.send(&[]).is_err());
    ensure!(opened.sender.send(&vec![1; 10_000]).is_err());
    for (byte, state) in [
        (1, PortState::Down),
        (2, PortState::Gone),
        (0, PortState::Up),
    ] {
        opened.sender.send(&[byte])?;
        ensure!(queue.state() == state);
    }
    Ok(())
}
