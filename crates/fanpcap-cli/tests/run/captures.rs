//! Copies of tcpdump: the packets that they capture, and that the command merges and reports as
//! lost.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_group::roster;
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::{Capture, Injector, Scratch, Veth, library, member, netns};
use pcap_file::pcapng::{Block, PcapNgReader};
use serde_json::Value;

use crate::{FAR, GROUP, NEAR, Running};

pub(crate) fn on_wire(test: impl FnOnce(&Injector) -> Result<()> + Send) -> Result<()> {
    netns::within_new(|| {
        Veth::new(NEAR, FAR, 1)?;
        test(&Injector::open(NEAR)?)
    })
}

pub(crate) fn frames(count: u64) -> Result<Vec<Frame>> {
    traffic::frames(7, &traffic::flows(7, 50), 0..count)
}

/// Returns how often each packet number occurs in a pcapng file. Checks that the file's timestamps
/// never decrease.
fn in_order(path: &Path) -> Result<BTreeMap<u64, usize>> {
    let mut reader = PcapNgReader::new(File::open(path)?)?;
    let (mut last, mut seen) = (Duration::ZERO, BTreeMap::new());
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block? {
            ensure!(last <= packet.timestamp, "stamps go back");
            last = packet.timestamp;
            let number = traffic::sequence_of(&packet.data).context("a foreign packet")?;
            *seen.entry(number).or_default() += 1;
        }
    }
    Ok(seen)
}

fn ensure_each_once(seen: &BTreeMap<u64, usize>, frames: u64) -> Result<()> {
    let expected: BTreeMap<u64, usize> = (0..frames).map(|number| (number, 1)).collect();
    ensure!(
        *seen == expected,
        "{} different ones of {frames}",
        seen.len()
    );
    Ok(())
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn the_merged_file_has_each_packet_once_in_the_order_of_time() {
    on_wire(|injector| {
        let running = Running::tcpdumps(&["--merge", "all.pcapng"], "%i.pcap")?;
        let frames = frames(20_000)?;
        injector.send_all(&frames)?;
        running.wait_for_packets(&["0.pcap", "1.pcap"], frames.len())?;
        let ended = running.stop()?;
        ensure_each_once(&in_order(&ended.scratch.file("all.pcapng"))?, 20_000)?;
        let summary = ended.summary();
        let total = &summary["total"];
        for (figure, expected) in [
            ("received", 20_000),
            ("dropped", 0),
            ("taken", 20_000),
            ("unread", 0),
        ] {
            ensure!(total[figure] == expected, "{figure}: {summary:#}");
        }
        ensure!(summary["taken_not_written"] == 0, "{summary:#}");
        for copy in [&summary["copies"][0], &summary["copies"][1]] {
            ensure!(
                copy["written"].as_u64() > Some(0) && copy["written"] == copy["taken"],
                "{summary:#}"
            );
        }
        ensure!(
            !ended.scratch.file("all.pcapng.part").exists(),
            "left behind"
        );
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn rotated_captures_are_merged_too() {
    on_wire(|injector| {
        let group = GROUP.to_string();
        let options = [
            "-n",
            "2",
            "--group",
            &group,
            "--cpus",
            "none",
            "--merge",
            "all.pcapng",
        ];
        let command = [
            "tcpdump", "-n", "-U", "-Z", "root", "-i", FAR, "-C", "1", "-w", "%i.pcap",
        ];
        let running = Running::start(&options, &command)?;
        running.wait_until_says("tcpdump: listening", 2)?;
        member::wait_for_members(GROUP, 2)?;
        let frames = frames(20_000)?;
        let mut sent = 0;
        for some in frames.chunks(500) {
            injector.send_all(some)?;
            sent += some.len() as u64;
            wait_until_taken(sent)?;
        }
        let ended = running.stop()?;
        ensure!(ended.scratch.file("0.pcap1").exists(), "no second file");
        ensure_each_once(&in_order(&ended.scratch.file("all.pcapng"))?, 20_000)?;
        let summary = ended.summary();
        ensure!(summary["taken_not_written"] == 0, "{summary:#}");
        Ok(())
    })
    .unwrap();
}

pub(crate) fn wait_until_taken(packets: u64) -> Result<()> {
    await_for("all to be taken", LIMIT, || {
        let seen = fanpcap_group::roster::entries()?;
        let taken = seen.iter().filter_map(|seen| seen.page.as_ref()?.taken);
        Ok((taken.sum::<u64>() >= packets).then_some(()))
    })
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn captures_on_standard_output_are_merged_too() {
    on_wire(|injector| {
        let running = Running::tcpdumps(&["--merge", "all.pcapng"], "-")?;
        injector.send_all(&frames(3000)?)?;
        // tcpdump writes its output in whole buffers, so a spool may lack packets. The copies'
        // counters show how many packets the copies took.
        wait_until_taken(3000)?;
        let ended = running.stop()?;
        ensure_each_once(&in_order(&ended.scratch.file("all.pcapng"))?, 3000)?;
        ensure!(ended.stdout().is_empty(), "a capture on standard output");
        let left: BTreeSet<_> = fs::read_dir(ended.scratch.file(""))?
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let expected = ["all.pcapng", "stderr", "stdout", "summary.json"].map(str::to_owned);
        ensure!(left == BTreeSet::from(expected), "{left:?}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn captures_on_standard_output_without_merge_are_refused() {
    on_wire(|_| {
        let command = ["tcpdump", "-n", "-U", "-i", FAR, "-w", "-"];
        let ended = Running::start(&["--cpus", "none"], &command)?.wait()?;
        ensure!(ended.status.code() == Some(1), "{}", ended.status);
        ensure!(
            ended.said().contains("--merge FILE merges them"),
            "{}",
            ended.said()
        );
        ensure!(ended.stdout().is_empty(), "a capture on standard output");
        Ok(())
    })
    .unwrap();
}

/// Sends frames at a limited rate until all are sent, and pauses while `hold` is set.
fn send_slowly(injector: &Injector, frames: &[Frame], hold: &AtomicBool) -> Result<()> {
    for some in frames.chunks(20) {
        while hold.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        injector.send_all(some)?;
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_copy_that_is_killed_comes_back_and_its_loss_is_told() {
    on_wire(|injector| {
        // With a steering program, the other copy would read the ring of the killed copy.
        let options = ["--fanout", "hash", "--restart", "--merge", "all.pcapng"];
        let running = Running::tcpdumps(&options, "%i.pcap")?;
        let offered = 20_000;
        let frames = frames(offered)?;
        let hold = AtomicBool::new(false);
        let (victim, other) = (running.copy(0)?, running.copy(1)?);
        thread::scope(|scope| -> Result<()> {
            let sender = scope.spawn(|| send_slowly(injector, &frames, &hold));
            let result = (|| {
                running.wait_for_packets(&["0.pcap"], 500)?;
                // While the victim is stopped, some packets stay unread.
                member::signal(victim, "STOP")?;
                let before = Capture::count_so_far(&running.scratch.file("1.pcap"));
                running.wait_for_packets(&["1.pcap"], before + 500)?;
                member::signal(victim, "KILL")?;
                // Pause the traffic until the new copy has joined: packets that come at the moment
                // of the join are lost, and no counter reports them.
                hold.store(true, Ordering::SeqCst);
                running.wait_until_says("0: tcpdump: listening", 2)?;
                member::wait_for_members(GROUP, 2)
            })();
            hold.store(false, Ordering::SeqCst);
            sender.join().expect("the sender does not panic")?;
            result
        })?;
        ensure!(running.copy(1)? == other, "copy 1 was started again too");
        // Wait until the living copies have written all packets that they took.
        let received = |path: &str| Capture::count_so_far(&running.scratch.file(path));
        await_for("the rings to be empty", LIMIT, || {
            let seen = fanpcap_group::roster::entries()?;
            let taken = seen
                .iter()
                .filter_map(|seen| seen.page.as_ref()?.taken)
                .sum::<u64>();
            Ok((received("0.pcap") as u64 + received("1.pcap") as u64 == taken).then_some(()))
        })?;
        let ended = running.stop()?;
        let summary = ended.summary();
        let number = |value: &Value| value.as_u64().with_context(|| format!("{summary:#}"));
        let total = &summary["total"];
        let lost = [&total["dropped"], &total["unread"], &total["refused"]];
        let lost = lost.into_iter().map(number).sum::<Result<u64>>()?;
        ensure!(number(&total["unread"])? > 0, "{summary:#}");
        ensure!(number(&total["taken"])? + lost == offered, "{summary:#}");
        let seen = in_order(&ended.scratch.file("all.pcapng"))?;
        ensure!(seen.values().all(|&times| times == 1), "a packet twice");
        let not_written = number(&summary["taken_not_written"])?;
        ensure!(
            seen.len() as u64 + not_written + lost == offered,
            "{summary:#}"
        );
        let copies = &summary["copies"];
        ensure!(
            copies[0]["starts"] == 2 && copies[0]["ends"][0]["signal"] == 9,
            "{summary:#}"
        );
        ensure!(copies[1]["starts"] == 1, "{summary:#}");
        ensure!(
            ended.scratch.file("0.pcap.1").exists(),
            "the first file is gone"
        );
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_copy_that_goes_on_in_a_child_is_not_deafened() {
    on_wire(|injector| {
        let scratch = Scratch::new()?;
        let daemon = scratch.file("daemon");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/netns/c/daemon.c");
        library::compile_c(&source, &daemon)?;
        let daemon = daemon.to_str().context("a path")?;
        // Copy 1 only sleeps. It keeps the command running after copy 0 has ended.
        let script = format!(
            "if [ %i = 0 ]; then exec setsid --wait {daemon} {FAR} {GROUP} hash 100 >&2; else exec sleep 60; fi"
        );
        let group = GROUP.to_string();
        let options = ["-n", "2", "--group", &group, "--cpus", "none"];
        let running = Running::start(&options, &["sh", "-c", &script])?;
        running.wait_until_says("ready", 1)?;
        member::wait_for_members(GROUP, 1)?;
        let parent = await_for("its page", LIMIT, || {
            let mut seen = roster::entries()?.into_iter().filter_map(|seen| seen.page);
            Ok(seen.next().map(|page| page.pid))
        })?;
        // Wait until the command has found the new member, for which it searches from time to time.
        thread::sleep(Duration::from_millis(500));
        member::signal(parent, "KILL")?;
        running.wait_until_says("copy 0 ended", 1)?;
        let frames = frames(150)?;
        for frame in &frames {
            injector.send(&frame.bytes)?;
        }
        running.wait_until_says("child has 100 packets", 1)?;
        await_for("the child's place to be free", LIMIT, || {
            let is_free = roster::entries()?
                .iter()
                .all(|seen| seen.socket.fanout.is_none());
            Ok(is_free.then_some(()))
        })?;
        running.signal("INT")?;
        let summary = running.wait()?.summary();
        let copy = &summary["copies"][0];
        let told = ["taken", "unread", "refused"].map(|what| copy[what].as_u64());
        ensure!(told == [Some(100), Some(50), Some(0)], "{summary:#}");
        Ok(())
    })
    .unwrap();
}
