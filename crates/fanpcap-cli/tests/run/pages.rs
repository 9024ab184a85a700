//! Runs the commands of README.md and docs/first-capture.md exactly as these pages show them, on
//! generated traffic.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::{Scratch, Veth, needs, netns};

use crate::shell::{end, said, start, taken, wait_for};

const README: &str = include_str!("../../../../README.md");
const FIRST: &str = include_str!("../../../../docs/first-capture.md");

const PACKETS: usize = 2000;

/// Longer than a ring's time-out: then the copies have read the last packets.
const GRACE: Duration = Duration::from_millis(1500);

/// The code spans of the README's tasks that start copies.
fn tasks() -> Vec<&'static str> {
    let (_, section) = README.split_once("\n## Eight tasks\n").expect("it");
    let (section, _) = section.split_once("\n## ").expect("its end");
    let spans = section.split('`').skip(1).step_by(2);
    spans
        .filter(|span| span.contains("fanpcap run -n"))
        .collect()
}

/// The lines of the first capture that run the command, up to the section on namespaces. `top`
/// needs a terminal, and has tests of its own.
fn steps() -> Vec<&'static str> {
    let (steps, _) = FIRST
        .split_once("\n## Without a network card\n")
        .expect("it");
    let lines = steps.lines().filter_map(|line| line.strip_prefix("    "));
    let is_ours = |line: &&str| line.starts_with("fanpcap ") && *line != "fanpcap top";
    lines.filter(is_ours).collect()
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn each_task_of_the_readme_works_as_it_is_written() {
    let tasks = tasks();
    assert_eq!(tasks.len(), 5, "{tasks:?}");
    let mut failed = Vec::new();
    let has_program = |line: &&str| {
        let (_, command) = line.split_once(" -- ").expect("a command");
        needs::programs(&command.split(' ').take(1).collect::<Vec<_>>())
    };
    for line in tasks.into_iter().filter(has_program) {
        if let Err(error) = netns::within_new(|| task(line)) {
            failed.push(format!("{line}: {error:?}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// Runs a task on two devices, sends packets to the first one, and ends the task as Ctrl-C does.
fn task(line: &str) -> Result<()> {
    Veth::new("port0", "eth0", 1)?;
    Veth::new("port1", "eth1", 1)?;
    let scratch = Scratch::new()?;
    let mut shell = start(&scratch, line)?;
    let (_, copies) = line.split_once("-n ").context("its copies")?;
    let copies = copies.split(' ').next().context("their number")?;
    let joined = format!(", on eth0: {copies} copies");
    wait_for(&scratch, &mut shell, &joined)?;
    let count = PACKETS.to_string();
    let sent = fanpcap()
        .args([
            "gen", "-i", "port0", "--tcp", "--rate", "10kpps", "--count", &count,
        ])
        .output()?;
    ensure!(sent.status.success(), "gen: {sent:?}");
    thread::sleep(GRACE);
    let said = end(&scratch, &mut shell)?;
    let taken = taken(&said)?;
    ensure!(taken == PACKETS, "{taken} of {PACKETS} taken: {said}");
    Ok(())
}

#[test]
#[ignore = "needs root: packet sockets and settings of a device in a namespace"]
fn each_step_of_the_first_capture_works_as_it_is_written() {
    netns::within_new(first_capture).unwrap();
}

fn first_capture() -> Result<()> {
    let steps = steps();
    ensure!(steps.len() == 7, "{steps:?}");
    Veth::new("port", "eth1", 1)?;
    let mut traffic = fanpcap()
        .args([
            "gen", "-i", "port", "--rate", "5kpps", "--flows", "1021", "--both",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let done = take(&steps);
    traffic.kill()?;
    traffic.wait()?;
    done
}

/// Takes the steps one after the other. The capture runs until the last step.
fn take(steps: &[&str]) -> Result<()> {
    let capture = Scratch::new()?;
    let mut copies = None;
    for line in steps {
        if line.starts_with("fanpcap run ") {
            let mut shell = start(&capture, line)?;
            wait_for(&capture, &mut shell, ", on eth1: 4 copies")?;
            copies = Some(shell);
            continue;
        }
        let scratch = Scratch::new()?;
        let status = start(&scratch, line)?.wait()?.code();
        let text = fs::read_to_string(scratch.file("stdout"))?;
        // On a busy machine the doctor may find that packets are lost.
        let is_well = status == Some(0) || line.contains("doctor") && status == Some(3);
        ensure!(is_well, "{line}: {status:?}: {text}{}", said(&scratch));
        if line.contains("metrics") {
            for metric in ["member_dropped", "device_dropped"] {
                let metric = format!("fanpcap_{metric}_packets_total");
                ensure!(
                    FIRST.contains(&metric) && text.contains(&metric),
                    "{metric}: {text}"
                );
            }
        }
    }
    thread::sleep(GRACE);
    let said = end(&capture, &mut copies.context("no capture")?)?;
    let merged = capture.file("all.pcapng");
    ensure!(fs::metadata(merged)?.len() > 10_000, "{said}");
    ensure!(said.contains("all.pcapng: "), "{said}");
    Ok(())
}

/// The command that is tested, without settings of the machine.
fn fanpcap() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fanpcap"));
    command.stdin(Stdio::null());
    command
}
