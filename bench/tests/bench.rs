//! Tests of the bench. A row is reported as a table and as JSON, and a run whose counters disagree
//! is refused.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fanpcap_testkit::{Scratch, member, needs};

/// Runs one row as quickly as possible. Other tests share the CPUs, so the figures are not checked.
fn quickly(row: &str, scratch: &Scratch, more: &[&str]) -> io::Result<Output> {
    needs::libpcap_headers().map_err(io::Error::other)?;
    Command::new(env!("CARGO_BIN_EXE_fanpcap-bench"))
        .args([row, "--quick", "--shared"])
        .args(more)
        .arg("--output")
        .arg(scratch.file("results"))
        .output()
}

/// The simplest row, on our library with its default engine.
fn tpacket(scratch: &Scratch, more: &[&str]) -> io::Result<Output> {
    quickly("tpacket", scratch, &[&["--driver", "none"], more].concat())
}

/// Runs a subcommand that does not measure.
fn bench(arguments: &[&OsStr]) -> io::Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_fanpcap-bench"))
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
    assert_eq!(report["session"]["milliseconds"], 300);
    let date = report["session"]["date"].as_str().unwrap();
    assert!(date.ends_with('Z') && date.starts_with("20"), "{date}");
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
fn the_engine_xdp_is_measured_beside_the_systems_library() {
    let scratch = Scratch::new().unwrap();
    let output = quickly("xdp", &scratch, &[]).unwrap();
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("aim 3.2"), "{said}");

    let json = fs::read(scratch.file("results/xdp.json")).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let goal = &report["goals"][0];
    assert_eq!(goal["aim"], 3.2);
    for round in goal["rounds"].as_array().unwrap() {
        for column in ["steal", "system"] {
            let figure = |name: &str| round[column][name].as_f64().unwrap();
            let told = figure("application_received") + figure("application_dropped");
            assert_eq!(told, figure("sent"), "{round}");
        }
        assert!(round["limit"]["captured_pps"].as_f64().unwrap() > 0.0);
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
#[ignore = "needs root: namespaces, eBPF, threaded NAPI"]
fn links_that_threads_poll_are_measured_by_placement() {
    let scratch = Scratch::new().unwrap();
    let output = needs::libpcap_headers()
        .map_err(io::Error::other)
        .and_then(|()| {
            Command::new(env!("CARGO_BIN_EXE_fanpcap-bench"))
                .args("placement-links --shared --rounds 1 --milliseconds 100 --output".split(' '))
                .arg(scratch.file("results"))
                .output()
        });
    let output = output.unwrap();
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    let json = fs::read(scratch.file("results/placement-links.json")).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let goals = report["goals"].as_array().unwrap();
    let round = &goals[0]["rounds"][0];
    let of = |column: &str, name: &str| round[column][name].as_f64().unwrap();
    for column in [
        "unplaced", "by_queue", "by_link", "crossed", "parted", "tuned",
    ] {
        let links = of(column, "first_link_pps") + of(column, "second_link_pps");
        assert!(
            (links / of(column, "captured_pps") - 1.0).abs() < 1e-9,
            "{round}"
        );
        let all = [
            "application_received",
            "application_dropped",
            "interface_dropped",
        ];
        let told: f64 = all.iter().map(|name| of(column, name)).sum();
        assert_eq!(told, of(column, "sent"), "{round}");
        assert!(of(column, "polling_ns") > 0.0, "{round}");
    }
}

#[test]
fn without_a_reader_it_does_not_panic() {
    for arguments in [["list"], ["nosuchrow"]] {
        let closed = || {
            let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
            drop(reader);
            std::os::fd::OwnedFd::from(writer)
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_fanpcap-bench"));
        command.args(arguments).stdout(closed()).stderr(closed());
        // A panic would end with status 101.
        let code = command.status().unwrap().code();
        assert!(
            [Some(0), Some(1)].contains(&code),
            "{arguments:?}: {code:?}"
        );
    }
}

#[test]
fn its_words_are_completed_and_what_is_hidden_is_not_offered() {
    let told = |line: &str| {
        let words = ["complete", "--"].into_iter().chain(line.split(' '));
        let words: Vec<&OsStr> = words.map(OsStr::new).collect();
        said(&bench(&words).unwrap())
    };
    assert_eq!(told("li"), "list\n");
    assert!(told("steer").lines().any(|row| row == "steering"));
    assert_eq!(told("compare before x"), ":files\n");
    for line in ["", "--"] {
        for hidden in ["generate", "compiler", "complete", "build", "--stray"] {
            assert!(!told(line).lines().any(|word| word == hidden), "{hidden}");
        }
    }
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

/// Writes a directory with one row that has one goal.
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

/// Writes a directory with one row, for a session with floods of this many milliseconds.
fn results_of(scratch: &Scratch, name: &str, milliseconds: u32) -> io::Result<PathBuf> {
    let directory = results(scratch, name, [0.9, 1.0, 1.1])?;
    let file = directory.join("tpacket.json");
    let mut row: serde_json::Value = serde_json::from_slice(&fs::read(&file)?)?;
    row["session"] = serde_json::json!({"milliseconds": milliseconds, "rounds": 8});
    fs::write(&file, row.to_string())?;
    Ok(directory)
}

#[test]
fn outputs_of_different_settings_are_not_compared() {
    let scratch = Scratch::new().unwrap();
    let long = results_of(&scratch, "long", 1000).unwrap();
    let short = results_of(&scratch, "short", 300).unwrap();
    let again = results_of(&scratch, "again", 1000).unwrap();
    let compare = |other: &PathBuf| {
        let output = bench(&["compare".as_ref(), long.as_ref(), other.as_ref()]).unwrap();
        (output.status.code(), said(&output))
    };
    let (status, told) = compare(&short);
    assert_eq!(status, Some(2), "{told}");
    assert!(told.contains("milliseconds: 1000 and 300"), "{told}");
    assert_eq!(compare(&again).0, Some(0));
}

/// A bench that runs until a signal, with its temporary files in the scratch directory.
fn endless(row: &str, scratch: &Scratch) -> io::Result<Child> {
    needs::libpcap_headers().map_err(io::Error::other)?;
    let temporary = scratch.file("temporary");
    fs::create_dir(&temporary)?;
    Command::new(env!("CARGO_BIN_EXE_fanpcap-bench"))
        .args([row, "--shared", "--milliseconds", "4000"])
        .arg("--output")
        .arg(scratch.file("results"))
        .env("TMPDIR", temporary)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// A process that is killed when a test fails early.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The processes that the bench has started: processes that have this variable in their
/// environment.
fn processes_with(variable: &str) -> io::Result<Vec<u32>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // The process may have ended.
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        if variables.any(|other| other == variable.as_bytes()) {
            pids.push(pid);
        }
    }
    Ok(pids)
}

/// Whether a process runs this program, or is the bench's own process with this subcommand.
fn is_program(pid: u32, program: &str) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    let first = line.split(' ').next().unwrap_or_default();
    first.ends_with(program) || line.contains(&format!("bench {program} "))
}

/// Waits up to two minutes for a condition.
fn eventually(what: &str, mut condition: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let start = Instant::now();
    while !condition()? {
        if start.elapsed() > Duration::from_secs(120) {
            return Err(io::Error::other(format!("{what}: not within two minutes")));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Starts a bench, and sends it a signal while its generator and `program` run. Waits until all
/// three have ended.
fn stopped_by(signal: &str, row: &str, program: &str) -> io::Result<(Scratch, Option<i32>)> {
    let scratch = Scratch::new().map_err(io::Error::other)?;
    let mut bench = Running(endless(row, &scratch)?);
    let mark = format!("TMPDIR={}", scratch.file("temporary").display());
    eventually("the generator and the program", || {
        let pids = processes_with(&mark)?;
        let runs = |what| pids.iter().any(|pid| is_program(*pid, what));
        Ok(runs("generate") && runs(program))
    })?;
    member::signal(bench.0.id(), signal).map_err(io::Error::other)?;
    let status = bench.0.wait()?.code();
    eventually("the end of what the bench has started", || {
        Ok(processes_with(&mark)?.is_empty())
    })?;
    Ok((scratch, status))
}

fn left_behind(scratch: &Scratch) -> io::Result<usize> {
    Ok(fs::read_dir(scratch.file("temporary"))?.count())
}

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn a_signal_ends_the_bench_with_all_that_it_has_started() {
    for (signal, number) in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
        let (scratch, status) = stopped_by(signal, "tpacket", "reader").unwrap();
        assert_eq!(status, Some(128 + number), "{signal}");
        assert_eq!(left_behind(&scratch).unwrap(), 0, "{signal}");
    }
}

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn programs_of_others_end_with_a_bench_that_is_killed() {
    // The scratch directory stays: no process is left to remove it.
    let (_scratch, status) = stopped_by("KILL", "fanout-real", "tshark").unwrap();
    assert_eq!(status, None);
    let (scratch, status) = stopped_by("TERM", "fanout-real", "dumpcap").unwrap();
    assert_eq!(status, Some(128 + 15));
    assert_eq!(left_behind(&scratch).unwrap(), 0);
}

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn a_broken_row_takes_its_old_results_away() {
    let scratch = Scratch::new().unwrap();
    results(&scratch, "results", [0.9, 1.0, 1.1]).unwrap();
    fs::write(scratch.file("results/tpacket.svg"), "old").unwrap();
    let output = tpacket(&scratch, &["--stray"]).unwrap();
    assert!(!output.status.success());
    for name in ["tpacket.json", "tpacket.svg"] {
        assert!(!scratch.file("results").join(name).exists(), "{name}");
    }
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

#[test]
#[ignore = "needs root: namespaces, eBPF, cgroups"]
fn each_packet_has_one_node() {
    let scratch = Scratch::new().unwrap();
    // The row is broken if not exactly one node's libpcap gets each sent packet.
    let output = quickly("dicap", &scratch, &["--driver", "none"]).unwrap();
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("4 nodes capture, times 1 node"), "{said}");
}

#[test]
#[ignore = "needs root: namespaces, eBPF, cgroups"]
fn a_node_and_libpcap_send_headers_to_an_analyzer() {
    let scratch = Scratch::new().unwrap();
    needs::libpcap_headers().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_fanpcap-bench"))
        .args("dicap-headers dicap-ids --shared --rounds 1 --milliseconds 100".split(' '))
        .args(["--driver", "none", "--output"])
        .arg(scratch.file("results"))
        .env_remove("FANPCAP_CAPTURES")
        .output()
        .unwrap();
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    let report = |row: &str| -> serde_json::Value {
        let json = fs::read(scratch.file("results").join(row)).unwrap();
        serde_json::from_slice(&json).unwrap()
    };
    let report_of_headers = report("dicap-headers.json");
    let goals = report_of_headers["goals"].as_array().unwrap();
    assert_eq!(goals.len(), 15);
    for column in ["each", "full", "node"] {
        let of = |goal: &serde_json::Value, name: &str| {
            goal["rounds"][0][column][name].as_f64().unwrap()
        };
        let counted: f64 = goals.iter().map(|goal| of(goal, "captured_pps")).sum();
        assert!(counted > 0.0, "{column}: {said}");
        let mut lost = goals.iter().map(|goal| of(goal, "lost_share"));
        assert!(lost.all(|it| (0.0..=100.0).contains(&it)), "{said}");
    }
    let report_of_ids = report("dicap-ids.json");
    let round = &report_of_ids["goals"][0]["rounds"][0];
    // Generated packets have random identifications.
    assert!(
        round["paper"]["outside_uniform"].as_f64().unwrap() < 2.0,
        "{round}"
    );
}
