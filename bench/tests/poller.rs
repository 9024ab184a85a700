//! Tests of the rows about pollers: what a poller and its member count is what was sent.
#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Output};

use fanpcap_testkit::{Scratch, needs};

/// Runs both rows as quickly as possible. Other tests share the CPUs, so the figures are not
/// checked.
fn quickly(results: &Path) -> io::Result<Output> {
    needs::libpcap_headers().map_err(io::Error::other)?;
    Command::new(env!("CARGO_BIN_EXE_fanpcap-bench"))
        .args("afxdp poller --shared --rounds 1 --milliseconds 100 --output".split(' '))
        .arg(results)
        .output()
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
    let output = quickly(&results).unwrap();
    let (out, err) = (&output.stdout, &output.stderr);
    let said = String::from_utf8_lossy(out).into_owned() + &String::from_utf8_lossy(err);
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
