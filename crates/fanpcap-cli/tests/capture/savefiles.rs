//! Savefiles that the command reads and copies. It must not destroy a savefile.

use std::path::Path;

use anyhow::Result;
use fanpcap_testkit::traffic::Frame;
use fanpcap_testkit::{Capture, Scratch, Transport};

use super::{SKIP, Wire, frames, last, number, system_library};

#[test]
fn a_savefile_is_counted_filtered_and_copied() {
    let Some(system) = system_library() else {
        println!("{SKIP}");
        return;
    };
    let scratch = Scratch::new().unwrap();
    let (source, copy) = (scratch.file("source.pcap"), scratch.file("copy.pcap"));
    let frames = frames(17, 500).unwrap();
    write(&source, &frames).unwrap();
    let run = |more: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_fanpcap"));
        command
            .args(["capture", "--json", "--library"])
            .arg(&system);
        let output = command
            .arg("-r")
            .arg(&source)
            .arg("-w")
            .arg(&copy)
            .args(more)
            .output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let summary = last(&said, "summary").unwrap();
        (
            number(&summary["total"], "captured"),
            Capture::read(&copy).unwrap(),
        )
    };

    let (captured, all) = run(&[]);
    assert_eq!(captured, 500);
    let numbers = |capture: &Capture| {
        capture
            .packets
            .iter()
            .filter_map(|p| p.sequence)
            .collect::<Vec<_>>()
    };
    assert_eq!(numbers(&all), (0..500).collect::<Vec<_>>());
    let (captured, some) = run(&["-c", "42"]);
    assert_eq!((captured, numbers(&some)), (42, (0..42).collect()));
    let (captured, tcp) = run(&["tcp"]);
    let is_tcp = |frame: &&Frame| frame.flow.transport == Transport::Tcp;
    assert_eq!(captured, frames.iter().filter(is_tcp).count() as u64);
    assert_eq!(captured, tcp.packets.len() as u64);
}

/// Writes a savefile of frames with timestamps a microsecond apart.
fn write(path: &Path, frames: &[Frame]) -> Result<()> {
    let mut writer = pcap_file::pcap::PcapWriter::new(std::fs::File::create(path)?)?;
    for (frame, microseconds) in frames.iter().zip(1..) {
        let stamp = std::time::Duration::from_micros(microseconds);
        let len = u32::try_from(frame.bytes.len())?;
        writer.write_packet(&pcap_file::pcap::PcapPacket::new(stamp, len, &frame.bytes))?;
    }
    Ok(())
}

#[test]
fn the_file_that_is_read_is_not_written() {
    let Some(system) = system_library() else {
        println!("{SKIP}");
        return;
    };
    let scratch = Scratch::new().unwrap();
    let source = scratch.file("0.pcap");
    write(&source, &frames(24, 50).unwrap()).unwrap();
    let before = std::fs::read(&source).unwrap();
    let (soft, hard) = (scratch.file("soft.pcap"), scratch.file("hard.pcap"));
    std::os::unix::fs::symlink(&source, &soft).unwrap();
    std::fs::hard_link(&source, &hard).unwrap();
    for target in [&source, &soft, &hard, &scratch.file("%i.pcap")] {
        for stdin in [false, true] {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_fanpcap"));
            command.args(["capture", "--library"]).arg(&system);
            command.arg("-w").arg(target).arg("-r");
            if stdin {
                command
                    .arg("-")
                    .stdin(std::fs::File::open(&source).unwrap());
            } else {
                command.arg(&source);
            }
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success(), "{said}");
            assert!(said.contains("--read reads this file"), "{said}");
            assert!(std::fs::read(&source).unwrap() == before, "{target:?}");
        }
    }
}

#[test]
#[ignore = "needs root: a network namespace"]
fn two_threads_do_not_write_one_file() {
    Wire::within(|wire| {
        std::os::unix::fs::symlink("0.pcap", wire.scratch.file("1.pcap"))?;
        let ended = wire.program("--threads 2")?.run(&wire.scratch)?;
        assert!(!ended.status.success(), "{}", ended.said);
        let error = "another thread writes this file under another name";
        assert!(ended.said.contains(error), "{}", ended.said);
        assert!(ended.said.contains("1.pcap"), "{}", ended.said);
        Ok(())
    })
    .unwrap();
}
