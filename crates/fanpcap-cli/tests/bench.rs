//! The bench itself: a row comes out as a table and as JSON, and a run whose counters disagree does not.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Output};

use fanpcap_testkit::Scratch;

/// Runs one row as quickly as can be. Other tests share the CPUs, so nothing is said of figures.
fn quickly(row: &str, scratch: &Scratch, more: &[&str]) -> io::Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_fanpcap"))
        .args(["bench", row, "--quick", "--shared"])
        .args(more)
        .arg("--output")
        .arg(scratch.file("results"))
        .output()
}

/// The simplest row, on our library as it is without an engine of its own.
fn tpacket(scratch: &Scratch, more: &[&str]) -> io::Result<Output> {
    quickly("tpacket", scratch, &[&["--driver", "none"], more].concat())
}

/// Runs a verb of the bench that measures nothing.
fn bench(arguments: &[&OsStr]) -> io::Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_fanpcap"))
        .arg("bench")
        .args(arguments)
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

    let svg = fs::read_to_string(scratch.file("results/tpacket.svg")).unwrap();
    assert!(svg.contains("fanpcap") && svg.contains("libpcap"));
    let json = fs::read(scratch.file("results/tpacket.json")).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let rounds = report["goals"][0]["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 2);
    for round in rounds {
        for side in ["ours", "system"] {
            let figure = |name: &str| round[side][name].as_f64().unwrap();
            assert!(figure("application_received") > 0.0, "{round}");
            let told = figure("application_received") + figure("application_dropped");
            assert_eq!(told, figure("sent"), "{round}");
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

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn two_workers_of_a_group_get_what_was_sent_once() {
    let scratch = Scratch::new().unwrap();
    let output = quickly("fanout", &scratch, &[]).unwrap();
    let said = said(&output);
    assert!(output.status.success(), "{said}");

    let json = fs::read(scratch.file("results/fanout.json")).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let goals = report["goals"].as_array().unwrap();
    assert_eq!(goals.len(), 4);
    for round in goals
        .iter()
        .flat_map(|goal| goal["rounds"].as_array().unwrap())
    {
        for column in ["one", "two"] {
            let figure = |name: &str| round[column][name].as_f64().unwrap();
            let told = figure("application_received") + figure("application_dropped");
            assert_eq!(told, figure("sent"), "{round}");
        }
    }
}

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn a_run_of_a_group_whose_counters_disagree_is_refused() {
    let scratch = Scratch::new().unwrap();
    let output = quickly("copies", &scratch, &["--stray"]).unwrap();
    let said = said(&output);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("refused: counters disagree"), "{said}");
    assert!(!scratch.file("results/copies.json").exists(), "{said}");
}

#[test]
fn rows_are_listed_with_their_goals() {
    let output = bench(&["list".as_ref()]).unwrap();
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("tpacket-cpu") && said.contains("must be <= 0.5"),
        "{said}"
    );
    assert!(
        said.contains("steering") && said.contains("no goal"),
        "{said}"
    );
}

/// A directory with one row that has one goal.
fn results(scratch: &Scratch, name: &str, spread: [f64; 3]) -> io::Result<PathBuf> {
    let directory = scratch.file(name);
    fs::create_dir(&directory)?;
    let [least, median, most] = spread;
    let spread = serde_json::json!({"least": least, "median": median, "most": most});
    let goal = serde_json::json!({"what": "captured", "spread": spread});
    let row = serde_json::json!({"row": "tpacket", "goals": [goal]});
    fs::write(directory.join("tpacket.json"), row.to_string())?;
    Ok(directory)
}

#[test]
fn two_outputs_agree_when_medians_lie_in_each_others_range() {
    let scratch = Scratch::new().unwrap();
    let first = results(&scratch, "first", [0.9, 1.0, 1.1]).unwrap();
    let alike = results(&scratch, "alike", [0.95, 1.02, 1.2]).unwrap();
    let apart = results(&scratch, "apart", [1.3, 1.4, 1.5]).unwrap();
    let compare = |a: &PathBuf, b: &PathBuf| {
        let output = bench(&["compare".as_ref(), a.as_ref(), b.as_ref()]).unwrap();
        (output.status.code(), said(&output))
    };
    let (status, told) = compare(&first, &alike);
    assert!(status == Some(0) && told.contains("same"), "{told}");
    let (status, told) = compare(&first, &apart);
    assert!(status == Some(1) && told.contains("DIFFERS"), "{told}");
    let (status, told) = compare(&first, &scratch.file("nowhere"));
    assert!(status == Some(1) && told.contains("nowhere"), "{told}");
}
