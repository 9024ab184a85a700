//! A handle on several devices merges their packets. The merge must not lose packets or filters,
//! and must not delay an application that uses select(2).

use anyhow::{Context, Result, bail, ensure};
use fanpcap_testkit::member::Ended;

use crate::two_wires::{Wires, on_two_wires};

const HOW: [&str; 2] = ["plain", "immediate"];

/// The output of a program that succeeds.
fn said(wires: &Wires, name: &str, arguments: &[&str]) -> Result<String> {
    let Ended { said, status, .. } = wires.run(name, arguments)?;
    ensure!(status.success(), "{name} {arguments:?}: {status}\n{said}");
    Ok(said)
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_read_after_poll_does_not_wait_and_poll_knows_when_all_is_read() -> Result<()> {
    on_two_wires(|wires| {
        for how in HOW {
            let said = said(wires, "merged_select", &["blocking", how])?;
            ensure!(said == "7 of 7 packets, waited no\n", "{how}: {said}");
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_select_loop_does_not_spin() -> Result<()> {
    on_two_wires(|wires| {
        for how in HOW {
            let said = said(wires, "merged_select", &["nonblocking", how])?;
            let wakes = said.strip_prefix("25 packets, ");
            let wakes = wakes.and_then(|rest| rest.strip_suffix(" wake-ups\n"));
            let wakes: u32 = wakes.with_context(|| said.clone())?.parse()?;
            ensure!(wakes <= 25 * 20 + 50, "{how}: {said}");
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn filter_and_direction_hold_from_the_next_packet_on() -> Result<()> {
    on_two_wires(|wires| {
        for how in HOW {
            let said_of = |what| said(wires, "merged_change", &[what, how]);
            let filtered = said_of("filter")?;
            ensure!(filtered == "before: 1\nafter: 5 9\n", "{how}: {filtered}");
            let outgoing = said_of("direction")?;
            ensure!(outgoing == "before: 1\nafter: 9\n", "{how}: {outgoing}");
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_missing_device_leaves_nothing_behind_and_may_come_back() -> Result<()> {
    ensure_retried("missing", "f2: No such device", "0")
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_group_that_refuses_leaves_nothing_behind_and_may_be_tried_again() -> Result<()> {
    ensure_retried("taken", "fan-out group 4", "4")
}

/// Checks a handle on `f1^f2` whose first activation fails because of f2: the second activation
/// must succeed. `why` is the cause of the failure (an argument of `c/merged_retry.c`), `reason` is
/// a part of the message, and `group` is f2's group, or 0 for none.
fn ensure_retried(why: &str, reason: &str, group: &str) -> Result<()> {
    on_two_wires(|wires| {
        let program = wires.program("merged_retry", &[why])?;
        let program = program.set("PCAP_GROUP_f1", "3").set("PCAP_FANOUT", "lb");
        let program = match group {
            "0" => program,
            _ => program.set("PCAP_GROUP_f2", group),
        };
        let ended = program.run(&wires.scratch)?;
        let said = &ended.said;
        ensure!(ended.status.success(), "{}\n{said}", ended.status);
        let lines: Vec<&str> = said.lines().collect();
        let [alone, first, refused, then, joined, other] = lines[..] else {
            bail!("{said}");
        };
        let whole = "1 members, 20 and 0 packets";
        ensure!(alone == format!("alone: {whole}"), "{said}");
        ensure!(first.contains(reason), "{said}");
        ensure!(refused == format!("refused: {whole}"), "{said}");
        ensure!(then == "then: 0 ", "{said}");
        let halves = "joined: 2 members, 10 and 10 packets";
        ensure!(joined == halves, "{said}");
        let second = "of f2: 2 members, 0 and 20 packets";
        ensure!(other == second, "{said}");
        Ok(())
    })
}

/// Loads that fill the ring of 8 MiB while the merge holds packets back. Each load is the timeout
/// in milliseconds, the packets per second, and the number of packets.
const LOADS: [[&str; 3]; 2] = [["100", "100000", "60000"], ["1000", "12000", "12000"]];

/// The number of attempts with each load. On a loaded machine a reader may be too late by chance.
const ATTEMPTS: usize = 4;

#[test]
#[ignore = "needs root: run by make test"]
fn an_idle_device_costs_the_other_no_packets() -> Result<()> {
    on_two_wires(|wires| {
        for load in LOADS {
            for how in ["loop", "select"] {
                let context = || format!("{how} {load:?}");
                if !ensure_lossless(wires, how, load).with_context(context)? {
                    println!("SKIP: this machine loses packets of a single device");
                }
            }
        }
        Ok(())
    })
}

/// Returns true if a handle on two devices loses no packet of the load in one of the attempts. On a
/// loaded machine packets are lost by chance, also on a single device: returns false in this case.
/// Fails only if in each attempt the handle on two devices loses packets, and a handle on one
/// device does not.
fn ensure_lossless(wires: &Wires, how: &str, load: [&str; 3]) -> Result<bool> {
    let lossless = format!("delivered {} dropped 0\n", load[2]);
    let run = |devices| said(wires, "merged_rate", &[&[devices, how], &load[..]].concat());
    let mut lost = Vec::new();
    for _ in 0..ATTEMPTS {
        let merged = run("f1^f2")?;
        if merged == lossless {
            return Ok(true);
        }
        if run("f1")? == lossless {
            lost.push(merged);
        }
    }
    let always = lost.len() == ATTEMPTS;
    ensure!(!always, "a single device loses nothing: {lost:?}");
    Ok(false)
}
