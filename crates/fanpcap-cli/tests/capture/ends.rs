//! Captures that end because of an error, and captures that end by one signal or several.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fanpcap_testkit::{Program, capture, library};
use serde_json::Value;

use super::{Wire, frames, last, number, summary, wait_for_received};

#[test]
#[ignore = "needs root: a network namespace"]
fn a_device_that_goes_away_ends_it_with_the_summary() {
    Wire::within(|wire| {
        let member = wire.start("--threads 2 --json")?;
        wire.send(&frames(18, 1000)?)?;
        wait_for_received(&member, 1000)?;
        fanpcap_testkit::veth::ip("link delete far")?;
        let ended = member.wait()?;
        assert!(!ended.status.success(), "{}", ended.said);
        assert!(ended.said.contains("fanpcap: thread "), "{}", ended.said);
        let summary = last(&ended.said, "summary").unwrap();
        assert_eq!(number(&summary["total"], "captured"), 1000);
        assert!(summary["link"].is_null(), "{summary}");
        let written = wire.captures(2)?;
        assert_eq!(capture::sequences(&written).len(), 1000);
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: a network namespace"]
fn a_full_disk_is_an_error_and_what_was_captured_is_told() {
    Wire::within(|wire| {
        let program = wire.plain("-i far --json -w /dev/full")?;
        let member = program.start(&wire.scratch)?;
        // Send more packets than the command buffers before it writes.
        wire.send(&frames(19, 5000)?)?;
        let ended = member.wait()?;
        assert!(!ended.status.success(), "{}", ended.said);
        let error = "writing /dev/full: No space left on device";
        assert!(ended.said.contains(error), "{}", ended.said);
        let summary = last(&ended.said, "summary").unwrap();
        let total = &summary["total"];
        assert!((1..5000).contains(&number(total, "captured")), "{summary}");
        assert_eq!(number(total, "written"), 0);
        assert_eq!(summary["adds_up"], false);
        Ok(())
    })
    .unwrap();
}

/// Sends a program `signals` interrupts, half a second apart. Returns the time until its end, and
/// its summary.
fn ended_after(wire: &Wire, arguments: &str, signals: usize) -> Result<(Duration, Value)> {
    let member = wire.start(arguments)?;
    wire.send(&frames(22, 200)?)?;
    let begin = Instant::now();
    for signal in 0..signals {
        if signal > 0 {
            thread::sleep(Duration::from_millis(500));
        }
        member.signal("INT")?;
    }
    let ended = member.wait()?;
    Ok((begin.elapsed(), summary(&ended)?))
}

#[test]
#[ignore = "needs root: a network namespace"]
fn a_long_timeout_is_not_waited_for_at_the_end() {
    Wire::within(|wire| {
        let (time, summary) = ended_after(wire, "--timeout 60000 --json", 1)?;
        assert!(time < Duration::from_secs(30), "{time:?}");
        // The summary must include the packets that the kernel held back because of the timeout.
        let total = &summary["total"];
        let (captured, received) = (
            number(total, "captured"),
            number(total, "received_by_filter"),
        );
        assert_eq!(
            (received, number(total, "left")),
            (200, received - captured)
        );
        assert_eq!(number(total, "written"), captured);
        assert_eq!(summary["adds_up"], captured == 200);
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: a network namespace"]
fn a_second_signal_ends_it_at_once() {
    Wire::within(|wire| {
        // Each packet takes a fifth of a second of work, so 200 packets take 40 seconds.
        let (time, summary) = ended_after(wire, "--work 200000000 --json", 2)?;
        assert!(time < Duration::from_secs(30), "{time:?}");
        let total = &summary["total"];
        assert_eq!(number(total, "captured") + number(total, "left"), 200);
        assert!(number(total, "left") > 0, "{summary}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: a network namespace"]
fn it_ends_while_its_handles_are_opened() {
    Wire::within(|wire| {
        // The command prints this text before it opens the first of its 256 handles.
        let program = Program::new(env!("CARGO_BIN_EXE_fanpcap"), "CPUs 0")?
            .set("FANPCAP_LIB_DIR", library::library_dir()?);
        let arguments = "capture -i far --threads 256 -B 1M --cpus 0 --json";
        let member = program
            .args(arguments.split_whitespace())
            .start(&wire.scratch)?;
        member.signal("INT")?;
        let ended = member.wait()?;
        let summary = summary(&ended)?;
        let threads = summary["threads"].as_array().unwrap().len();
        assert!(threads < 256, "{summary}");
        let said = format!("ended when {threads} of 256 threads had begun");
        assert!(ended.said.contains(&said), "{}", ended.said);
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: a network namespace"]
fn rates_are_without_what_came_while_handles_were_opened() {
    Wire::within(|wire| {
        let sending = AtomicBool::new(true);
        let frames = frames(23, 50)?;
        let ended = thread::scope(|scope| {
            // Send at most 10000 packets a second, so that no packet is lost on a busy machine.
            let flow = scope.spawn(|| -> Result<()> {
                while sending.load(Ordering::Relaxed) {
                    wire.send(&frames)?;
                    thread::sleep(Duration::from_millis(5));
                }
                Ok(())
            });
            let program = wire.plain("-i far --threads 64 -B 16M --seconds 3 --json")?;
            let ended = program.run(&wire.scratch);
            sending.store(false, Ordering::Relaxed);
            flow.join().unwrap()?;
            ended
        })?;
        let summary = summary(&ended)?;
        assert!(summary["seconds"].as_f64() > Some(3.0), "{summary}");
        let first = ended.said.lines().find_map(|line| last(line, "interval"));
        let first = first.context("no interval")?;
        let captured = first["total"]["captured_per_second"].as_f64();
        let link = first["link"]["received_per_second"].as_f64();
        let (captured, link) = captured.zip(link).context("no rates")?;
        // The intervals of threads and device begin at different times, so these rates differ a
        // little. If the rates included the earlier packets, their ratio would be about ten.
        assert!((0.5..2.0).contains(&(captured / link)), "{first}");
        Ok(())
    })
    .unwrap();
}
