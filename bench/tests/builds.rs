//! Tests of the bench with another build of the library: the other build is measured in the same
//! rounds.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fanpcap_testkit::library::library_dir;
use fanpcap_testkit::{Scratch, needs};

fn bench(arguments: &[&OsStr]) -> io::Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_fanpcap-bench"))
        .args(arguments)
        .output()
}

/// Runs the bench as quickly as possible. Other tests share the CPUs, so the figures are not
/// checked.
fn quickly(arguments: &[&OsStr], scratch: &Scratch) -> io::Result<Output> {
    needs::libpcap_headers().map_err(io::Error::other)?;
    let results = scratch.file("results");
    let more = ["--quick", "--shared", "--output"].map(OsStr::new);
    bench(&[arguments, &more, &[results.as_ref()]].concat())
}

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    String::from_utf8_lossy(out).into_owned() + &String::from_utf8_lossy(err)
}

/// Copies a library's directory, without its links.
fn copied(library: &Path, scratch: &Scratch) -> io::Result<PathBuf> {
    let directory = scratch.file("other");
    fs::create_dir(&directory)?;
    fs::copy(library.join(SONAME), directory.join(SONAME))?;
    Ok(directory)
}

const SONAME: &str = "libpcap.so.0.8";

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn another_build_is_measured_in_the_same_rounds() {
    let scratch = Scratch::new().unwrap();
    let other = copied(&library_dir().unwrap(), &scratch).unwrap();
    let output = quickly(
        &["xdp-handle".as_ref(), "--other".as_ref(), other.as_ref()],
        &scratch,
    )
    .unwrap();
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains(&*other.to_string_lossy()), "{said}");

    let json = fs::read(scratch.file("results/xdp-handle.json")).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let goals = report["goals"].as_array().unwrap();
    let rounds = goals
        .iter()
        .flat_map(|goal| goal["rounds"].as_array().unwrap());
    for round in rounds {
        for column in ["other_xdp", "other_steal"].map(|key| &round[key]) {
            if column.is_null() {
                continue;
            }
            let figure = |name: &str| column[name].as_f64();
            let is_of_handle = figure("open_close_us").is_some_and(|time| time > 0.0);
            // A pool of packets is mapped, so the memory is more than that of tcpdump alone.
            let is_of_memory =
                figure("rss_mb") >= figure("pss_mb") && figure("pss_mb") > Some(20.0);
            assert!(is_of_handle || is_of_memory, "{round}");
        }
    }
}

#[test]
fn another_build_must_be_another_and_there() {
    let scratch = Scratch::new().unwrap();
    let refused = |arguments: &[&OsStr]| {
        let output = bench(arguments).unwrap();
        assert!(!output.status.success(), "{}", said(&output));
        said(&output)
    };
    let nothing = scratch.file("nothing");
    let missing = refused(&["builds".as_ref(), "--other".as_ref(), nothing.as_ref()]);
    assert!(missing.contains("--other"), "{missing}");
    let without = refused(&["builds".as_ref()]);
    assert!(
        without.contains("name its directory by --other"),
        "{without}"
    );
}
