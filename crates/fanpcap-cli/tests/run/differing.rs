//! Copies with modes of their own: several `--fanout`.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::{Capture, Scratch};
use serde_json::Value;

use crate::captures::{frames, on_wire, wait_until_taken};
use crate::{FAR, GROUP, Running};

/// Starts three copies, of which copy 0 has other options than copies 1 and 2.
fn start(scratch: &Scratch, program: &str, options: [&str; 2], device: &str) -> Result<Running> {
    let file = scratch.write("steer.pfq", program)?;
    let [first, others] = options.map(|options| format!("file:{}{options}", file.display()));
    let group = GROUP.to_string();
    let options = ["-n", "3", "--group", &group, "--cpus", "none"];
    let modes = ["--fanout", &first, "--fanout", &others];
    let command = [
        "tcpdump", "-n", "-U", "-Z", "root", "-i", device, "-w", "%i.pcap",
    ];
    let running = Running::start(&[&options[..], &modes].concat(), &command)?;
    running.wait_until_says("tcpdump: listening", 3)?;
    Ok(running)
}

/// The figure `name` of each slot, once no slot lacks its buckets.
fn slots(name: &str) -> Result<Vec<u64>> {
    await_for("the shares", LIMIT, || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fanpcap"));
        command.args(["group", FAR, &GROUP.to_string(), "--json"]);
        let told: Value = serde_json::from_slice(&command.output()?.stdout)?;
        let slots = told["slots"].as_array().context("slots")?;
        let has_share = |slot: &&Value| slot["buckets"].as_u64().is_some_and(|it| it > 0);
        let figures = slots.iter().filter(has_share);
        let figures: Option<Vec<u64>> = figures.map(|slot| slot[name].as_u64()).collect();
        Ok(figures.filter(|figures| figures.len() == 3))
    })
}

#[test]
#[ignore = "needs root: eBPF, packet sockets in a namespace"]
fn each_copy_has_the_weight_of_its_mode() {
    on_wire(|_| {
        let scratch = Scratch::new()?;
        let weights = [" +weight=1", " +weight=1000"];
        let running = start(&scratch, "main = steer_flow\n", weights, FAR)?;
        let file = format!("file:{}", scratch.file("steer.pfq").display());
        let modes = format!("{file} +weight=1 (copy 0), {file} +weight=1000 (from copy 1 on)");
        running.wait_until_says(&format!("3 copies in group {GROUP}, {modes}; "), 1)?;
        running.wait_until_says(&format!("in group {GROUP}, {modes}, on {FAR}: 3 copies"), 1)?;
        assert_eq!(slots("weight")?, [1, 1000, 1000]);
        let buckets = slots("buckets")?;
        ensure!((1..=4).contains(&buckets[0]), "{buckets:?}");
        assert_eq!(buckets.iter().sum::<u64>(), 4096);
        running.signal("TERM")?;
        running.wait().map(drop)
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: eBPF, packet sockets in a namespace"]
fn each_copy_on_xdp_has_the_class_of_its_mode() {
    on_wire(|injector| {
        let scratch = Scratch::new()?;
        let program = "main = when (share 0 2 \"ip_src,src_port\") (classify 2) >-> steer_flow\n";
        let running = start(&scratch, program, [" +class=2", ""], &format!("xdp:{FAR}"))?;
        assert_eq!(slots("class")?, [2, 0, 0]);
        injector.send_all(&frames(300)?)?;
        wait_until_taken(300)?;
        running.signal("INT")?;
        let ended = running.wait()?;
        let numbers = |copy: usize| -> Result<Vec<u64>> {
            let capture = Capture::read(&ended.scratch.file(&format!("{copy}.pcap")))?;
            let all = capture.packets.iter().map(|packet| packet.sequence);
            all.map(|it| it.context("a foreign packet")).collect()
        };
        let taken = [numbers(0)?, numbers(1)?, numbers(2)?];
        ensure!(taken.iter().all(|it| !it.is_empty()), "{taken:?}");
        let mut all = taken.concat();
        all.sort_unstable();
        assert_eq!(all, (0..300).collect::<Vec<_>>());
        Ok(())
    })
    .unwrap();
}

#[test]
fn modes_that_differ_are_refused() {
    let refused = |modes: &[&str]| {
        let modes = modes.iter().flat_map(|mode| ["--fanout", mode]);
        let options: Vec<&str> = ["-n", "2", "--device", "lo"]
            .into_iter()
            .chain(modes)
            .collect();
        let running = Running::start(&options, &["true"]).unwrap();
        running.wait().unwrap().said()
    };
    let said = refused(&["flow", "hash"]);
    assert!(
        said.contains("only +weight and +class may differ"),
        "{said}"
    );
    let said = refused(&["lb", "lb", "lb"]);
    assert!(said.contains("more modes than copies"), "{said}");
}
