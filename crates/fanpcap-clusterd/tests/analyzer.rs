//! An analyzer that is killed and started again.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use fanpcap_cluster::record::Record;
use fanpcap_cluster::{NodeId, Revision};
use fanpcap_clusterd::keyring::Keyring;
use fanpcap_clusterd::shipping::{RecordTransport, Shipper, ShipperSettings};
use fanpcap_linux::wait::clock;
use fanpcap_testkit::Scratch;
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::loopback::free_address;
use pcap_file::pcapng::{Block, PcapNgReader};
use serde_json::Value;

fn start(scratch: &Scratch, options: &[&str]) -> Result<Child> {
    let child = Command::new(env!("CARGO_BIN_EXE_fanpcap-cluster"))
        .args(["analyzer", "--json", "--config"])
        .arg(scratch.file("cluster.conf"))
        .arg("--write")
        .arg(scratch.file("records"))
        .args(options)
        .stdout(Stdio::piped())
        .spawn()?;
    Ok(child)
}

/// A byte of a packet's content. The content compresses, but to more than half of its length.
fn noise(number: u32, at: u32) -> u8 {
    let mixed = (number ^ 0x5bd1_e995)
        .wrapping_mul(at | 1)
        .wrapping_mul(0x9e37_79b1);
    (mixed ^ (mixed >> 15)).to_be_bytes()[1]
}

/// Ships the packets with these numbers, ten in each batch. `bytes` bytes of each packet were
/// captured.
fn ship(node: &mut Shipper, numbers: std::ops::Range<u32>, bytes: usize) {
    for number in numbers {
        let captured: Vec<u8> = (number.to_be_bytes().into_iter())
            .chain((0..).map(|at: u32| noise(number, at)))
            .take(bytes)
            .collect();
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

/// The packets' numbers in all files of a directory. Each file must consist of whole blocks.
fn numbers(directory: &Path) -> Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory)? {
        numbers.extend(numbers_of(&entry?.path(), false)?);
    }
    Ok(numbers)
}

/// The packets' numbers in a file, compressed or not. If `may_be_cut` is set, the last block may be
/// cut off.
fn numbers_of(path: &Path, may_be_cut: bool) -> Result<Vec<u32>> {
    let file = File::open(path)?;
    let bytes: Box<dyn Read> = match path.extension().is_some_and(|end| end == "zst") {
        true => Box::new(zstd::Decoder::new(file)?),
        false => Box::new(file),
    };
    let mut numbers = Vec::new();
    let mut reader = PcapNgReader::new(bytes)?;
    while let Some(block) = reader.next_block() {
        match block {
            Ok(Block::EnhancedPacket(packet)) => {
                let number = packet.data.first_chunk().copied().context("4 bytes")?;
                numbers.push(u32::from_be_bytes(number));
            }
            Err(_) if may_be_cut => break,
            other => drop(other?),
        }
    }
    Ok(numbers)
}

/// Writes the settings of a cluster with one node and with an analyzer at this address. Returns the
/// node's shipper.
fn cluster(scratch: &Scratch, listen: SocketAddr) -> Result<Shipper> {
    let conf = "cluster = test\nengine = fixed\nnodes = a1\nmode = capture\n";
    let conf = format!("{conf}analyzers = {listen}\n");
    scratch.write("cluster.conf", &conf)?;
    let settings = ShipperSettings {
        cluster: fanpcap_cluster::control::ClusterId::of_name("test").0,
        node: NodeId(0xa1),
        boot: 1,
        session: 1,
        link: 1,
        transport: RecordTransport::Tcp,
    };
    let mut node = Shipper::new(settings, Arc::new(Keyring::new(None)));
    node.follow(&[listen])?;
    Ok(node)
}

#[test]
fn a_killed_analyzer_leaves_valid_files_and_its_successor_waits_for_nothing() -> Result<()> {
    let scratch = Scratch::new()?;
    let mut node = cluster(&scratch, free_address())?;
    let directory = scratch.file("records");
    let mut first = start(&scratch, &[])?;
    ship(&mut node, 0..1000, 4);
    await_for("packets in a file", LIMIT, || {
        let there = directory.exists() && !numbers(&directory)?.is_empty();
        Ok(there.then_some(()))
    })?;
    first.kill()?;
    first.wait()?;
    let before = numbers(&directory)?.len();
    assert!(before > 0);
    let mut second = start(&scratch, &[])?;
    ship(&mut node, 1000..2000, 4);
    // The first analyzer has taken the session's first batches. If the second analyzer waited for
    // these batches, it would never acknowledge the later batches.
    let shipped = node.close();
    assert_eq!((shipped.lost, shipped.sent), (0, 2000));
    let status = last_status(&mut second, |it| it["written"].as_u64() >= Some(1000))?;
    second.kill()?;
    second.wait()?;
    assert_eq!(status["export"], 0, "{status}");
    assert!(status["late"].is_u64(), "{status}");
    let after = numbers(&directory)?;
    assert!((1000..2000).all(|number| after.contains(&number)));
    Ok(())
}

/// The files of a directory in the order of their names, each with its size in bytes.
fn listed(directory: &Path) -> Result<Vec<(PathBuf, u64)>> {
    let entries = fs::read_dir(directory)?;
    let of = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry?;
        Ok((entry.path(), entry.metadata()?.len()))
    };
    let mut files: Vec<(PathBuf, u64)> = entries.map(of).collect::<Result<_>>()?;
    files.sort_unstable();
    Ok(files)
}

fn has_end(path: &Path, end: &str) -> bool {
    path.extension().is_some_and(|it| it == end)
}

/// An analyzer is killed while it changes files, and the next analyzer continues with the files.
/// The newest packets are in the files exactly once, and the files keep to the size limit. Files of
/// other programs stay.
#[test]
fn a_killed_analyzers_files_are_compressed_and_removed_by_its_successor() -> Result<()> {
    const MIB: u64 = 1 << 20;
    let scratch = Scratch::new()?;
    let directory = scratch.file("records");
    fs::create_dir(&directory)?;
    let elsewhere = scratch.write("elsewhere", "mine")?;
    let link = directory.join("records-0000000001.000000000.pcapng");
    symlink(&elsewhere, &link)?;
    let others = [
        "records-1.pcapng",
        "records-0000000001.000000000.pcapng.old",
    ];
    for name in others {
        fs::write(directory.join(name), "mine")?;
    }
    let options = "--rotate-size 1 --keep-size 4 --compress".split(' ');
    let options: Vec<&str> = options.collect();
    let mut node = cluster(&scratch, free_address())?;
    let mut sent = 0;
    for run in 0..8 {
        let mut analyzer = start(&scratch, &options)?;
        ship(&mut node, sent..sent + 2000, 1000);
        sent += 2000;
        // In each run, the analyzer is killed at another moment.
        thread::sleep(Duration::from_millis(150 * run));
        analyzer.kill()?;
        analyzer.wait()?;
    }
    let mut analyzer = start(&scratch, &options)?;
    // The killed analyzer may have acknowledged all packets, so that the new analyzer would get
    // none. So more packets are shipped to the new analyzer.
    ship(&mut node, sent..sent + 100, 1000);
    sent += 100;
    assert_eq!(node.close().lost, 0);
    let status = last_status(&mut analyzer, |status| {
        let compressed = status["figures"]["compressed_files"].as_u64();
        let waits = listed(&directory).is_ok_and(|files| {
            let plain = files.iter().filter(|(path, _)| has_end(path, "pcapng"));
            // Three stay uncompressed: the file being written, the link, and a foreign file.
            plain.count() > 3
        });
        assert_eq!(status["trouble"], Value::Null, "{status}");
        status["written"].as_u64() > Some(0) && compressed > Some(0) && !waits
    })?;
    analyzer.kill()?;
    analyzer.wait()?;
    fs::remove_file(&link)?;
    for name in others {
        let path = directory.join(name);
        assert_eq!(fs::read(&path)?, b"mine", "{name}");
        fs::remove_file(path)?;
    }
    assert_eq!(fs::read(&elsewhere)?, b"mine");
    let files = listed(&directory)?;
    let bytes: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    assert!(bytes <= 4 * MIB, "{bytes}: {files:?}");
    assert!(
        files.iter().all(|(path, _)| !has_end(path, "part")),
        "{files:?}"
    );
    let mut found = Vec::new();
    for (path, _) in &files {
        found.extend(numbers_of(path, true)?);
    }
    found.sort_unstable();
    assert!(found.first() > Some(&2000), "the oldest are removed");
    // The analyzer keeps 4 MiB of about 16 MiB that were sent. Even if the packets compress badly,
    // at least the newest 2 MiB must be left.
    let newest: Vec<u32> = (sent - 2000..sent).collect();
    found.retain(|number| *number >= sent - 2000);
    assert!(
        found == newest,
        "{} of {}: {status}",
        found.len(),
        newest.len()
    );
    Ok(())
}

/// The first status for which `is_last` returns `true`.
fn last_status(analyzer: &mut Child, is_last: impl Fn(&Value) -> bool) -> Result<Value> {
    let lines = BufReader::new(analyzer.stdout.take().context("its output")?).lines();
    for line in lines {
        let status: Value = serde_json::from_str(&line?)?;
        if is_last(&status) {
            return Ok(status);
        }
    }
    anyhow::bail!("the analyzer has ended")
}
