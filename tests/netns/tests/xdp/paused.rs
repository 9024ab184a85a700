//! A reader that stops for a while.

use std::sync::atomic::AtomicBool;

use anyhow::{Result, ensure};
use fanpcap_netns::on_wire;

use crate::numbered::{Read, Reader, numbered};

/// Bytes of a frame, and frames a second.
const LEN: u16 = 512;
const RATE: &str = "1Mpps";

/// Lets a reader stop while so many frames come.
fn stopped(frames: u64) -> Result<Read> {
    on_wire(1, |wire| {
        let reader = Reader::start(wire, "waits")?;
        reader.0.signal("STOP")?;
        let sent = numbered([1, 0], LEN, RATE, Some(frames), &AtomicBool::new(false))?;
        ensure!(sent == frames, "{sent} sent");
        reader.0.signal("CONT")?;
        reader.stop()
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_reader_that_stops_for_100_ms_loses_nothing() -> Result<()> {
    let frames = 100_000;
    let expected = Read {
        packets: frames,
        breaks: 0,
        received: frames,
        dropped: 0,
    };
    let read = stopped(frames)?;
    ensure!(read == expected, "{read:?}");
    Ok(())
}

#[test]
#[ignore = "needs root: run by make test"]
fn each_packet_that_a_reader_loses_is_counted() -> Result<()> {
    let frames = 400_000;
    let read = stopped(frames)?;
    println!("{read:?}");
    ensure!(read.dropped > 0 && read.breaks == 0, "{read:?}");
    ensure!(read.received == frames, "{read:?}");
    ensure!(read.packets + read.dropped == frames, "{read:?}");
    Ok(())
}
