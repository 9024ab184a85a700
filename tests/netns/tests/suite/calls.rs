//! The C API, called from C: pcap/fanout.h.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use fanpcap_netns::{DEVICE, on_wire};
use fanpcap_testkit::{Program, member, traffic};

#[test]
#[ignore = "needs root: run by make test"]
fn every_call_keeps_its_promise() -> Result<()> {
    on_wire(1, |wire| {
        let ended = Program::new(wire.compile("api")?, "")?
            .arg(DEVICE)
            .run(&wire.scratch)?;
        ensure!(ended.status.success(), "{}", ended.said);
        ensure!(ended.said.contains("all checks passed"), "{}", ended.said);
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn four_threads_share_the_traffic_and_know_the_sums() -> Result<()> {
    on_wire(1, |wire| {
        let frames = traffic::frames(1, &traffic::flows(1, 50), 0..4000)?;
        let program = Program::new(wire.compile("threads")?, "ready")?;
        let threads = program.args([DEVICE, "4000"]).start(&wire.scratch)?;
        member::wait_for_members(7, 4)?;
        wire.send(&frames)?;

        let ended = threads.wait()?;
        ensure!(ended.status.success(), "{}", ended.said);
        let lines: Vec<_> = ended.said.lines().filter_map(fields).collect();
        ensure!(lines.len() == 4, "{}", ended.said);
        for line in &lines {
            ensure!(
                line["valid"] == "0x1f" && line["members"] == "4",
                "{line:?}"
            );
            ensure!(
                line["received"] == line["packets"] && line["packets"] != "0",
                "{line:?}"
            );
            ensure!(
                line["group_received"] == "4000" && line["group_dropped"] == "0",
                "{line:?}"
            );
        }
        let packets = lines.iter().map(|line| line["packets"].parse::<u64>());
        let sum = packets
            .sum::<Result<u64, _>>()
            .context("a number of packets")?;
        ensure!(sum == 4000, "{sum} packets");
        Ok(())
    })
}

/// The `name=value` words of a thread's line.
fn fields(line: &str) -> Option<HashMap<&str, &str>> {
    let words = line.strip_prefix("thread ")?.split(' ');
    words.map(|word| word.split_once('=')).collect()
}
