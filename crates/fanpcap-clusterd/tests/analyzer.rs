//! An analyzer that is killed and started again.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use fanpcap_cluster::record::Record;
use fanpcap_cluster::{NodeId, Revision};
use fanpcap_clusterd::keyring::Keyring;
use fanpcap_clusterd::shipping::{Shipper, ShipperSettings, Way};
use fanpcap_linux::wait::clock;
use fanpcap_testkit::Scratch;
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::loopback::free_address;
use pcap_file::pcapng::{Block, PcapNgReader};
use serde_json::Value;

fn start(scratch: &Scratch) -> Result<Child> {
    let child = Command::new(env!("CARGO_BIN_EXE_fanpcap-cluster"))
        .args(["analyzer", "--json", "--config"])
        .arg(scratch.file("cluster.conf"))
        .arg("--write")
        .arg(scratch.file("records"))
        .stdout(Stdio::piped())
        .spawn()?;
    Ok(child)
}

/// Ships the packets of these numbers, a batch each ten of them.
fn ship(node: &mut Shipper, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let captured = number.to_be_bytes();
        let record = Record {
            stamp: clock::monotonic_ns().wrapping_add(clock::realtime_offset_ns()),
            wire_length: 60,
            bucket: 7,
            marked: false,
            captured: &captured,
        };
        node.push(Revision(1), &record);
        if number % 10 == 9 {
            node.flush(Revision(1), 0);
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The numbers in all files of a directory. Each file is whole blocks to its end.
fn numbers(directory: &Path) -> Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory)? {
        let mut reader = PcapNgReader::new(File::open(entry?.path())?)?;
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block? {
                let number = packet.data.first_chunk().copied().context("4 bytes")?;
                numbers.push(u32::from_be_bytes(number));
            }
        }
    }
    Ok(numbers)
}

#[test]
fn a_killed_analyzer_leaves_valid_files_and_its_successor_waits_for_nothing() -> Result<()> {
    let scratch = Scratch::new()?;
    let listen = free_address();
    let conf = "cluster = test\nengine = fixed\nnodes = a1\nmode = capture\n";
    let conf = format!("{conf}analyzers = {listen}\n");
    scratch.write("cluster.conf", &conf)?;
    let directory = scratch.file("records");
    let mut first = start(&scratch)?;
    let settings = ShipperSettings {
        cluster: fanpcap_cluster::control::ClusterId::of_name("test").0,
        node: NodeId(0xa1),
        boot: 1,
        session: 1,
        link: 1,
        way: Way::Tcp,
    };
    let mut node = Shipper::new(settings, Arc::new(Keyring::new(None)));
    node.follow(&[listen])?;
    ship(&mut node, 0..1000);
    await_for("packets in a file", LIMIT, || {
        let there = directory.exists() && !numbers(&directory)?.is_empty();
        Ok(there.then_some(()))
    })?;
    first.kill()?;
    first.wait()?;
    let before = numbers(&directory)?.len();
    assert!(before > 0);
    let mut second = start(&scratch)?;
    ship(&mut node, 1000..2000);
    // The session's first batches were the first analyzer's: nothing is acknowledged if the second
    // one waits for them.
    let shipped = node.close();
    assert_eq!((shipped.lost, shipped.sent), (0, 2000));
    let lines = BufReader::new(second.stdout.take().context("its output")?).lines();
    let mut status = Value::Null;
    for line in lines {
        status = serde_json::from_str(&line?)?;
        if status["written"].as_u64() >= Some(1000) {
            break;
        }
    }
    second.kill()?;
    second.wait()?;
    assert_eq!(status["export"], 0, "{status}");
    assert!(status["late"].is_u64(), "{status}");
    let after = numbers(&directory)?;
    assert!((1000..2000).all(|number| after.contains(&number)));
    Ok(())
}
