//! `fanpcap verify` on real packets. Modes that keep flows together must pass. Other modes must
//! fail, and the command must print examples. Without packets, the command must report that it has
//! verified nothing.
#![forbid(unsafe_code)]

use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::{Injector, Veth, netns, traffic};
use serde_json::Value;

#[path = "pages/json.rs"]
mod json_page;

const COMMAND: &str = env!("CARGO_BIN_EXE_fanpcap");
const PAGE: &str = include_str!("../../../docs/verify-json.md");

fn verify(arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(COMMAND);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().to_uppercase().starts_with("PCAP_") {
            command.env_remove(name);
        }
    }
    command.env("PCAP_CONFIG", "/dev/null");
    command
        .args(["verify", "fvr1", "--seconds", "1"])
        .args(arguments);
    Ok(command.output()?)
}

/// Runs the command with traffic that it generates itself. Returns its exit status and its JSON.
fn verified(arguments: &[&str]) -> Result<(i32, Value)> {
    let output = verify(&[&["--generate", "fvr0", "--json"], arguments].concat())?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let told: Value = serde_json::from_slice(&output.stdout).with_context(|| said)?;
    json_page::check(PAGE, &told)?;
    Ok((output.status.code().context("a status")?, told))
}

fn outcomes(told: &Value) -> Vec<String> {
    let checks = told["checks"].as_array().into_iter().flatten();
    let of = |it: &Value| format!("{} {}", it["name"], it["outcome"]).replace('"', "");
    checks.map(of).collect()
}

fn within(test: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    netns::within_new(|| {
        Veth::new("fvr0", "fvr1", 2)?;
        test()
    })
}

const ALL: [&str; 5] = [
    "shares ok",
    "flows ok",
    "directions ok",
    "ledger ok",
    "loss ok",
];

#[test]
#[ignore = "needs root: packets in a namespace"]
fn modes_that_keep_flows_together_are_verified() -> Result<()> {
    within(|| {
        for (mode, members) in [("flow", "4"), ("hash", "3")] {
            let (status, told) = verified(&["--fanout", mode, "-n", members])?;
            ensure!(status == 0 && told["verified"] == true, "{told}");
            assert_eq!(outcomes(&told), ALL, "{told}");
            assert_eq!(told["mode"], mode);
            assert_eq!(told["flows_total"], 1021);
            let judged = told["packets_judged_total"].as_u64();
            ensure!(judged.is_some_and(|it| it > 5000), "{told}");
            let directions = told["checks"][2]["what"].as_str().unwrap_or_default();
            ensure!(!directions.contains("one direction only"), "{directions}");
            let sent = told["generated_packets_total"].as_u64().context("sent")?;
            let shares = told["members"].as_array().context("members")?;
            assert_eq!(shares.len().to_string(), members);
            let seen = shares
                .iter()
                .map(|it| it["packets_total"].as_u64().unwrap_or(0));
            let seen: u64 = seen.sum();
            ensure!(seen > sent / 3 && seen <= sent, "{told}");
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: packets in a namespace"]
fn a_mode_that_splits_flows_fails_with_examples() -> Result<()> {
    within(|| {
        let (status, told) = verified(&["--fanout", "lb"])?;
        assert_eq!((status, &told["verified"]), (3, &false.into()));
        assert_eq!(outcomes(&told)[1], "flows fail");
        let examples = told["checks"][1]["examples"]
            .as_array()
            .context("examples")?;
        assert_eq!(examples.len(), 3);
        let output = verify(&["--generate", "fvr0", "--fanout", "rnd"])?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            said.contains("FAIL  flows") && said.contains("such as "),
            "{said}"
        );
        ensure!(said.ends_with("\nNOT verified\n"), "{said}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: packets in a namespace"]
fn directions_at_different_members_fail() -> Result<()> {
    within(|| {
        // This steering program uses only the source address, so the two directions of a flow may
        // reach different members.
        let (status, told) = verified(&["--fanout", "main = ip >-> steer_field 26 4"])?;
        assert_eq!(status, 3, "{told}");
        assert_eq!(
            outcomes(&told)[1..3],
            ["flows ok", "directions fail"],
            "{told}"
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs root: packets in a namespace"]
fn of_single_packets_nothing_is_verified() -> Result<()> {
    within(|| {
        let flows = traffic::flows(3, 2);
        let of = |flow| traffic::frames(3, &[flow], 0..1);
        let frames = flows.into_iter().map(of).collect::<Result<Vec<_>>>()?;
        let injector = Injector::open("fvr0")?;
        let is_over = AtomicBool::new(false);
        let output = thread::scope(|scope| {
            scope.spawn(|| {
                for frame in frames.concat().iter().cycle() {
                    if is_over.load(Ordering::Relaxed) || injector.send(&frame.bytes).is_err() {
                        return;
                    }
                    thread::sleep(Duration::from_millis(250));
                }
            });
            let output = verify(&[]);
            is_over.store(true, Ordering::Relaxed);
            output
        })?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.code() == Some(1), "{said}");
        ensure!(said.contains("\nopen  flows "), "{said}");
        let last = said.lines().last().context("a line")?;
        ensure!(last.starts_with("NOT verified: "), "{said}");
        ensure!(last.contains(" are too few; "), "{said}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: packets in a namespace"]
fn without_packets_nothing_is_verified() -> Result<()> {
    within(|| {
        let output = verify(&[])?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1));
        ensure!(said.contains("nothing is verified"), "{said}");
        let output = verify(&["--generate", "lo"])?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.status.code() == Some(1) && said.contains("loopback"),
            "{said}"
        );
        Ok(())
    })
}

/// Settings name a group that has other members. The command must use another group, so that these
/// members keep their shares.
#[test]
#[ignore = "needs root: packets in a namespace"]
fn settings_do_not_choose_the_group() -> Result<()> {
    within(|| {
        let mut command = Command::new(COMMAND);
        let output = command
            .args("verify -i fvr1 -t 1 -n 2 --generate fvr0 --json".split(' '))
            .envs([
                ("PCAP_CONFIG", "/dev/null"),
                ("PCAP_GROUP", "77"),
                ("PCAP_FANOUT", "hash"),
            ])
            .output()?;
        let told: Value = serde_json::from_slice(&output.stdout)?;
        assert_ne!(told["group"], 77);
        assert_eq!(told["mode"], "hash", "the settings choose the mode");
        Ok(())
    })
}
