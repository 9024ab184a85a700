//! The bench itself: a row comes out as a table and as JSON, and a run whose counters disagree does not.
#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::process::{Command, Output};

use fanpcap_testkit::Scratch;

/// Runs one row as quickly as can be, on our library as it is without an engine of its own. Other
/// tests share the CPUs, so nothing is said of figures.
fn tpacket(scratch: &Scratch, more: &[&str]) -> io::Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_fanpcap"))
        .args([
            "bench", "tpacket", "--quick", "--shared", "--driver", "none",
        ])
        .args(more)
        .arg("--output")
        .arg(scratch.file("results"))
        .output()
}

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    String::from_utf8_lossy(out).into_owned() + &String::from_utf8_lossy(err)
}

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn a_row_is_measured_on_both_libraries() {
    let scratch = Scratch::new().unwrap();
    let output = tpacket(&scratch, &[]).unwrap();
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("captured packets/s, ratio"), "{said}");

    let json = fs::read(scratch.file("results/tpacket.json")).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let pairs = report["goals"][0]["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 2);
    for pair in pairs {
        for side in ["ours", "system"] {
            let figure = |name: &str| pair[side][name].as_f64().unwrap();
            assert!(figure("application_received") > 0.0, "{pair}");
            let told = figure("application_received") + figure("application_dropped");
            assert_eq!(told, figure("sent"), "{pair}");
        }
    }
}

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn a_run_whose_counters_disagree_is_refused() {
    let scratch = Scratch::new().unwrap();
    let output = tpacket(&scratch, &["--stray"]).unwrap();
    let said = said(&output);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("refused: counters disagree"), "{said}");
    assert!(!scratch.file("results/tpacket.json").exists(), "{said}");
}
