//! `fanpcap capture`. Its numbers must be exact, its threads must share packets by flow, and at its
//! end it must print a summary.
#![forbid(unsafe_code)]

mod ends;
mod filters;
mod savefiles;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_testkit::member::Ended;
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::{
    Capture, Injector, Member, Program, Scratch, Veth, await_for, capture, library, netns, veth,
};
use serde_json::Value;

/// A veth pair, and programs that capture at its far end.
struct Wire {
    veth: Veth,
    scratch: Scratch,
}

impl Wire {
    /// Runs `test` in a separate network namespace.
    fn within(test: impl FnOnce(&Wire) -> Result<()> + Send) -> Result<()> {
        netns::within_new(|| {
            test(&Wire {
                veth: Veth::new("near", "far", 1)?,
                scratch: Scratch::new()?,
            })
        })
    }

    /// The command at the device far with `arguments`. It writes its savefiles to the test's
    /// directory.
    fn program(&self, arguments: &str) -> Result<Program> {
        let program = Program::new(env!("CARGO_BIN_EXE_fanpcap"), "capturing on far")?
            .set("FANPCAP_LIB_DIR", library::library_dir()?)
            .args(["capture", "-i", "far", "-w"])
            .arg(self.scratch.file("%i.pcap"));
        Ok(program.args(arguments.split_whitespace()))
    }

    /// The command with no arguments but these.
    fn plain(&self, arguments: &str) -> Result<Program> {
        let program = Program::new(env!("CARGO_BIN_EXE_fanpcap"), "capturing on far")?
            .set("FANPCAP_LIB_DIR", library::library_dir()?);
        Ok(program.arg("capture").args(arguments.split_whitespace()))
    }

    fn start(&self, arguments: &str) -> Result<Member> {
        self.program(arguments)?.start(&self.scratch)
    }

    fn send(&self, frames: &[Frame]) -> Result<()> {
        Ok(Injector::open(self.veth.near)?.send_all(frames)?)
    }

    /// The captures that the first `threads` threads have written.
    fn captures(&self, threads: usize) -> Result<Vec<Capture>> {
        let file = |thread| self.scratch.file(&format!("{thread}.pcap"));
        (0..threads)
            .map(|thread| Capture::read(&file(thread)))
            .collect()
    }
}

fn frames(seed: u64, count: u64) -> Result<Vec<Frame>> {
    traffic::frames(seed, &traffic::flows(seed, 100), 0..count)
}

/// The last JSON object of this kind that a program has printed.
fn last(said: &str, kind: &str) -> Option<Value> {
    let objects = said.lines().rev().filter(|line| line.starts_with('{'));
    let mut values = objects.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    values.find(|value| value["kind"] == kind)
}

fn summary(ended: &Ended) -> Result<Value> {
    ensure!(ended.status.success(), "{}:\n{}", ended.status, ended.said);
    last(&ended.said, "summary").with_context(|| format!("no summary in:\n{}", ended.said))
}

/// Waits until an interval reports that the kernel has counted this many packets for the threads.
fn wait_for_received(member: &Member, packets: u64) -> Result<()> {
    await_for(&format!("{packets} packets received"), LIMIT, || {
        let interval = last(&member.said()?, "interval");
        let received = interval.map(|interval| interval["total"]["received_by_filter"].clone());
        Ok((received == Some(packets.into())).then_some(()))
    })
}

fn number(value: &Value, name: &str) -> u64 {
    value[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no {name} in {value}"))
}

#[test]
#[ignore = "needs root: a network namespace"]
fn four_threads_share_a_flood_by_flow() {
    Wire::within(|wire| {
        let member = wire.start("--threads 4 --fanout hash -B 16M --cpus auto --json")?;
        wire.send(&frames(11, 20_000)?)?;
        wait_for_received(&member, 20_000)?;
        let summary = summary(&member.stop()?)?;

        let captures = wire.captures(4)?;
        for (thread, capture) in captures.iter().enumerate() {
            let told = &summary["threads"][thread];
            assert_eq!(number(told, "captured"), capture.packets.len() as u64);
            assert_eq!(
                number(told, "received_by_filter"),
                capture.packets.len() as u64
            );
            assert!(capture.packets.len() > 1000, "{summary}");
        }
        assert_eq!(capture::split_flows(&captures), [].into());
        let sequences = capture::sequences(&captures);
        assert!(
            sequences.keys().copied().eq(0..20_000) && sequences.values().all(|&times| times == 1)
        );
        assert_eq!(summary["adds_up"], true);
        assert_eq!(number(&summary["link"], "received"), 20_000);
        assert_eq!(number(&summary["group"], "received"), 20_000);
        assert_eq!(number(&summary["group"], "members"), 4);
        // Groups in mode hash have no slots.
        assert!(summary["group"]["slots"].is_null(), "{summary}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: a network namespace"]
fn four_threads_share_a_flood_on_xdp() {
    Wire::within(|wire| {
        let program = wire.program("--threads 4 --fanout flow -B 16M --json")?;
        let member = program.set("PCAP_DRIVER", "xdp").start(&wire.scratch)?;
        ensure!(
            veth::has_xdp(wire.veth.far)?,
            "the device has no XDP program"
        );
        wire.send(&frames(14, 20_000)?)?;
        wait_for_received(&member, 20_000)?;
        let summary = summary(&member.stop()?)?;
        let captures = wire.captures(4)?;
        for (thread, capture) in captures.iter().enumerate() {
            let told = &summary["threads"][thread];
            assert_eq!(number(told, "captured"), capture.packets.len() as u64);
            assert!(capture.packets.len() > 1000, "{summary}");
        }
        assert_eq!(capture::split_flows(&captures), [].into());
        let sequences = capture::sequences(&captures);
        assert!(
            sequences.keys().copied().eq(0..20_000) && sequences.values().all(|&times| times == 1)
        );
        assert_eq!(summary["adds_up"], true, "{summary}");
        assert_eq!(number(&summary["group"], "received"), 20_000);
        assert_eq!(number(&summary["group"], "members"), 4);
        let slots = summary["group"]["slots"].as_array();
        let slots = slots.map(|it| {
            it.iter()
                .map(|slot| (number(slot, "slot"), number(slot, "buckets")))
        });
        let slots: Vec<(u64, u64)> = slots.into_iter().flatten().collect();
        assert_eq!(slots, [0, 1, 2, 3].map(|slot| (slot, 1024)), "{summary}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: a network namespace"]
fn what_the_rings_can_not_hold_is_counted() {
    Wire::within(|wire| {
        // Send 60000 packets of 200 bytes. A thread needs 50 microseconds for each packet, so the
        // threads and their rings can't handle all of them.
        let member = wire.start("--threads 4 -B 1M --work 50000 --json")?;
        let frames = frames(12, 60_000)?;
        wire.send(&frames)?;
        wait_for_received(&member, 60_000)?;
        member.signal("TERM")?;
        let summary = summary(&member.wait()?)?;

        let total = &summary["total"];
        let dropped = number(total, "dropped_by_kernel");
        assert!(dropped > 0, "{summary}");
        assert_eq!(number(total, "received_by_filter"), 60_000);
        assert_eq!(number(total, "captured") + dropped, 60_000);
        assert_eq!(summary["adds_up"], true, "{summary}");
        let of_threads = summary["threads"].as_array().unwrap().iter();
        assert_eq!(
            of_threads
                .map(|one| number(one, "dropped_by_kernel"))
                .sum::<u64>(),
            dropped
        );
        assert!(
            total["cpu_ns_per_packet"].as_f64() >= Some(50_000.0),
            "{summary}"
        );
        let written = wire
            .captures(4)?
            .iter()
            .map(|capture| capture.packets.len())
            .sum::<usize>();
        assert_eq!(written as u64 + dropped, 60_000);
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: a network namespace"]
fn a_count_is_that_of_all_threads() {
    Wire::within(|wire| {
        let member = wire.start("--threads 4 -c 1000 --json --quiet")?;
        wire.send(&frames(13, 5000)?)?;
        let ended = member.wait()?;
        let summary = summary(&ended)?;
        assert_eq!(number(&summary["total"], "captured"), 1000);
        assert!(last(&ended.said, "interval").is_none(), "{}", ended.said);
        let captures = wire.captures(4)?;
        assert_eq!(
            captures
                .iter()
                .map(|capture| capture.packets.len())
                .sum::<usize>(),
            1000
        );
        assert_eq!(capture::split_flows(&captures), [].into());
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: a network namespace"]
fn each_thread_has_its_share_when_the_capture_is_announced() {
    Wire::within(|wire| {
        let member = wire.start("--threads 8")?;
        let mut group = Command::new(env!("CARGO_BIN_EXE_fanpcap"));
        let said = group.args(["group", "far", "--json"]).output()?.stdout;
        let group: Value = serde_json::from_slice(&said)?;
        let slots = group["slots"].as_array().context("slots")?;
        let shares: Vec<u64> = slots.iter().map(|slot| number(slot, "buckets")).collect();
        assert_eq!(shares, [512; 8]);
        member.stop()?;
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: a network namespace"]
fn two_programs_may_be_in_one_group() {
    Wire::within(|wire| {
        let start = || {
            let program = Program::new(env!("CARGO_BIN_EXE_fanpcap"), "capturing on far")?
                .set("FANPCAP_LIB_DIR", library::library_dir()?);
            let arguments = "capture -i far --threads 2 --group 9 --json";
            program
                .args(arguments.split_whitespace())
                .start(&wire.scratch)
        };
        let members = [start()?, start()?];
        wire.send(&frames(15, 4000)?)?;
        let captured = |said: &str| {
            last(said, "interval").map_or(0, |interval| number(&interval["total"], "captured"))
        };
        await_for("all packets", LIMIT, || {
            let all = captured(&members[0].said()?) + captured(&members[1].said()?);
            Ok((all == 4000).then_some(()))
        })?;
        let [one, other] = members;
        let one = summary(&one.stop()?)?;
        assert_eq!(number(&one["group"], "members"), 4);
        let slots = one["group"]["slots"].as_array().map(Vec::len);
        assert_eq!(slots, Some(2), "{one}");
        let other = summary(&other.stop()?)?;
        let both = number(&one["total"], "captured") + number(&other["total"], "captured");
        assert_eq!(both, 4000);
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: a network namespace"]
fn one_thread_works_on_the_systems_library() {
    let Some(system) = system_library() else {
        println!("{SKIP}");
        return;
    };
    Wire::within(|wire| {
        let library = format!("--library {} --json", system.display());
        let member = wire.start(&format!("-B 16M {library}"))?;
        wire.send(&frames(16, 5000)?)?;
        wait_for_received(&member, 5000)?;
        let summary = summary(&member.stop()?)?;
        assert_eq!(summary["adds_up"], true);
        assert_eq!(number(&summary["total"], "captured"), 5000);
        assert_eq!(wire.captures(1)?[0].packets.len(), 5000);
        assert!(summary["group"].is_null());

        let ended = wire
            .program(&format!("--threads 2 {library}"))?
            .run(&wire.scratch)?;
        assert!(!ended.status.success());
        assert!(
            ended.said.contains("has no pcap_fanout()"),
            "{}",
            ended.said
        );
        Ok(())
    })
    .unwrap();
}

fn system_library() -> Option<PathBuf> {
    let paths = [
        "/usr/lib/x86_64-linux-gnu/libpcap.so.0.8",
        "/usr/lib/aarch64-linux-gnu/libpcap.so.0.8",
        "/usr/lib64/libpcap.so.1",
    ];
    paths.iter().map(PathBuf::from).find(|path| path.exists())
}

const SKIP: &str = "SKIP: the system's libpcap is not where it is on Debian and Fedora";
