//! Tests of the rows about pollers: what a poller and its member count is what was sent.
#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Output};

use fanpcap_testkit::{Scratch, dpdk, needs};

/// Runs rows as quickly as possible. Other tests share the CPUs, so the figures are not checked.
fn quickly(rows: &[&str], plugin: Option<&Path>, results: &Path) -> io::Result<Output> {
    needs::libpcap_headers().map_err(io::Error::other)?;
    Command::new(env!("CARGO_BIN_EXE_fanpcap-bench"))
        .args(rows)
        .args("--shared --rounds 1 --milliseconds 100 --output".split(' '))
        .arg(results)
        .envs(plugin.map(|plugin| ("FANPCAP_DPDK_PLUGIN", plugin)))
        .output()
}

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    String::from_utf8_lossy(out).into_owned() + &String::from_utf8_lossy(err)
}

/// The goals of a row.
fn goals(results: &Path, row: &str) -> io::Result<Vec<serde_json::Value>> {
    let json = fs::read(results.join(format!("{row}.json")))?;
    let report: serde_json::Value = serde_json::from_slice(&json)?;
    Ok(report["goals"].as_array().cloned().unwrap_or_default())
}

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn pollers_are_measured_and_all_packets_are_accounted_for() {
    let scratch = Scratch::new().unwrap();
    let results = scratch.file("results");
    let output = quickly(&["afxdp", "poller"], None, &results).unwrap();
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("must be >= 1.6, aim 2.2"), "{said}");
    assert!(said.contains(" 0 goals not measured"), "{said}");

    for (row, column) in [("afxdp", "afxdp"), ("poller", "packet")] {
        let mut idle = 0;
        for goal in goals(&results, row).unwrap() {
            let sample = &goal["rounds"][0][column];
            let figure = |name: &str| sample[name].as_f64();
            if figure("idle_share").is_some() {
                idle += 1;
                continue;
            }
            let counted = figure("application_received").zip(figure("application_dropped"));
            let counted = counted.map(|(received, dropped)| received + dropped);
            assert_eq!(counted, figure("sent"), "{goal}");
            assert!(figure("sent") > Some(0.0), "{goal}");
            assert!(figure("poller_ns") > Some(0.0), "{goal}");
        }
        assert_eq!(idle, if row == "poller" { 2 } else { 0 }, "{said}");
    }
}

#[test]
#[ignore = "needs root: a poller's socket and pools"]
fn a_poller_of_dpdk_is_measured_part_by_part() {
    let scratch = Scratch::new().unwrap();
    let Ok(plugin) = dpdk::plugin(&scratch) else {
        return;
    };
    let results = scratch.file("results");
    let output = quickly(&["dpdk"], Some(&plugin), &results).unwrap();
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains(" 0 goals not measured"), "{said}");
    for goal in goals(&results, "dpdk").unwrap() {
        let round = &goal["rounds"][0];
        let figure = |column: &str, name: &str| round[column][name].as_f64();
        for column in ["source", "steered", "one", "four", "two"] {
            assert!(figure(column, "sent_pps") > Some(0.0), "{round}");
            assert!(figure(column, "poller_ns") > Some(0.0), "{round}");
            let is_whole = !["source", "steered"].contains(&column);
            let captured = figure(column, "captured_pps");
            assert_eq!(captured.is_some_and(|it| it > 0.0), is_whole, "{round}");
        }
    }
}
