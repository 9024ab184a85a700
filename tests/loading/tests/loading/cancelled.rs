//! A cancelled thread ends as it does on the system's library, and its process continues.

use anyhow::{Result, ensure};
use fanpcap_loading::{compile, on_ours, run};
use fanpcap_testkit::{Scratch, netns};

/// The calls of c/cancelled.c.
const CALLS: [&str; 7] = [
    "pcap_create",
    "pcap_lib_version",
    "pcap_set_snaplen",
    "pcap_activate",
    "pcap_next_ex",
    "pcap_stats",
    "pcap_close",
];

#[test]
#[ignore = "needs root: a live handle in a network namespace"]
fn without_a_group_calls_bear_a_pending_cancellation() -> Result<()> {
    each_call_bears_it(None)
}

#[test]
#[ignore = "needs root: a live handle in a network namespace"]
fn in_a_group_calls_bear_a_pending_cancellation() -> Result<()> {
    each_call_bears_it(Some("7"))
}

fn each_call_bears_it(group: Option<&str>) -> Result<()> {
    let scratch = Scratch::new()?;
    let program = compile(&scratch, "cancelled.c", &["-pthread"])?;
    netns::within_new(|| {
        for call in CALLS {
            let mut command = on_ours(&program)?;
            command.arg(call);
            if let Some(group) = group {
                command.env("PCAP_GROUP", group);
            }
            let ended = run(&scratch, &mut command)?;
            let silent = ended.out.is_empty() && ended.err.is_empty();
            ensure!(ended.status.success() && silent, "{call}: {ended:?}");
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a live handle in a network namespace"]
fn without_a_group_threads_are_cancelled_anywhere() -> Result<()> {
    threads_are_cancelled_anywhere(None)
}

/// Threads of a member's process are cancelled at any instruction, as ettercap cancels its threads.
#[test]
#[ignore = "needs root: a live handle in a network namespace"]
fn in_a_group_threads_are_cancelled_anywhere() -> Result<()> {
    threads_are_cancelled_anywhere(Some("7"))
}

fn threads_are_cancelled_anywhere(group: Option<&str>) -> Result<()> {
    let scratch = Scratch::new()?;
    let program = compile(&scratch, "cancelled_anywhere.c", &["-pthread"])?;
    netns::within_new(|| {
        let mut command = on_ours(&program)?;
        if let Some(group) = group {
            command.env("PCAP_GROUP", group);
        }
        let ended = run(&scratch, &mut command)?;
        let silent = ended.out.is_empty() && ended.err.is_empty();
        ensure!(ended.status.success() && silent, "{ended:?}");
        Ok(())
    })
}
