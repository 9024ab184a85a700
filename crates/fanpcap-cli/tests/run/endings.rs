//! The ends of `fanpcap run`, without and with signals. In some tests nobody reads the command's
//! output, or copies leave processes behind.

use std::fs;
use std::io::Read;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use fanpcap_linux::process::stat::Stat;
use fanpcap_nic::channels;
use fanpcap_nic::device::Device;
use fanpcap_testkit::await_for::{LIMIT, await_for, within};
use fanpcap_testkit::{Veth, member, netns};

use crate::{FAR, NEAR, Running};

/// Starts copies of a shell script. The command's output goes to a pipe.
fn piped(options: &[&str], text: &str) -> Running {
    let line = [options, &["-n", "2", "--", "sh", "-c", text]].concat();
    Running::start_by(&[], &line, Some(Stdio::piped())).expect("it starts")
}

/// The numbers in files that a script writes, once all files are complete.
fn pids(running: &Running, names: &[&str]) -> Vec<u32> {
    let read = |name: &&str| {
        let text = fs::read_to_string(running.scratch.file(name)).ok()?;
        text.strip_suffix('\n')?.parse().ok()
    };
    await_for("the processes", LIMIT, || {
        Ok(names.iter().map(read).collect::<Option<Vec<u32>>>())
    })
    .expect("numbers of processes")
}

/// The state of a process as in proc(5); `None` if the process is gone.
fn state(pid: u32) -> Option<char> {
    let state = Stat::of(pid)?.state;
    (state != 'Z').then_some(state)
}

fn await_state(pid: u32, wanted: &[Option<char>]) {
    await_for("another state", LIMIT, || {
        Ok(wanted.contains(&state(pid)).then_some(()))
    })
    .expect("another state");
}

#[test]
fn a_signal_ends_all_while_nobody_reads() {
    for (text, signals) in [
        ("exec yes", 1),
        // The script prints text when it gets the signal to end.
        (
            "trap 'seq 1 99999; exit 0' TERM; while :; do echo and so on; done",
            1,
        ),
        ("trap '' TERM; yes", 3),
    ] {
        let running = piped(&[], text);
        thread::sleep(Duration::from_millis(500));
        let limit = within(Duration::from_secs(5));
        let begin = Instant::now();
        for _ in 0..signals {
            running.signal("TERM").unwrap();
            thread::sleep(Duration::from_millis(500));
        }
        let mut running = running;
        let pipe = running.process.stdout.take();
        let ended = running.wait().unwrap();
        let taken = begin.elapsed();
        let limit = limit.max(within(Duration::from_secs(5)));
        assert!(taken < limit, "{text}: {taken:?} of {limit:?}");
        assert!(ended.said().contains("is not read"), "{}", ended.said());
        drop(pipe);
    }
}

#[test]
fn a_slow_reader_gets_all() {
    let mut running = piped(&["--prefix"], "seq 1 25000");
    let mut pipe = running.process.stdout.take().unwrap();
    thread::sleep(Duration::from_secs(3));
    let mut out = String::new();
    pipe.read_to_string(&mut out).unwrap();
    let ended = running.wait().unwrap();
    assert_eq!(out.lines().count(), 50_000, "{}", ended.said());
    let of_first = out.lines().filter_map(|line| line.strip_prefix("0: "));
    assert!(of_first.eq((1..=25_000).map(|number| number.to_string())));
}

#[test]
fn the_second_interrupt_kills() {
    let text = "trap '' INT TERM QUIT; echo $$ >pid; while :; do sleep 0.05; done";
    let running = Running::start(&["-n", "1"], &["sh", "-c", text]).unwrap();
    pids(&running, &["pid"]);
    let begin = Instant::now();
    // Send one signal more than necessary, because on a busy machine two signals may merge into
    // one.
    for _ in 0..3 {
        running.signal("TERM").unwrap();
        thread::sleep(Duration::from_millis(500));
    }
    let ended = running.wait().unwrap();
    assert_eq!(ended.status.code(), Some(137), "{}", ended.said());
    let taken = begin.elapsed();
    assert!(taken < within(Duration::from_secs(4)), "{taken:?}");
    assert!(
        ended.said().contains("killing the copies"),
        "{}",
        ended.said()
    );
}

#[test]
fn a_copy_that_does_not_end_is_named() {
    let text = "trap '' TERM; echo $$ >pid; while :; do sleep 0.05; done";
    let running = Running::start(&["-n", "1"], &["sh", "-c", text]).unwrap();
    let copy = pids(&running, &["pid"])[0];
    running.signal("TERM").unwrap();
    let told = format!("waiting for copy 0 (sh, process {copy}) to end; a second signal kills");
    running.wait_until_says(&told, 1).unwrap();
    running.signal("TERM").unwrap();
    assert_eq!(running.wait().unwrap().status.code(), Some(137));
}

#[test]
fn copies_that_were_never_in_the_group_are_no_success() {
    let text = "exec sleep 4";
    let ended = Running::start(&["-n", "2"], &["sh", "-c", text])
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.said());
    let told = ": no copy captured its share of the packets";
    assert!(ended.said().contains(told), "{}", ended.said());
    let ended = Running::start(&["-n", "2"], &["true"])
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.said());
}

#[test]
fn copies_that_ended_while_the_command_was_stopped_ran_long_enough() {
    let running = Running::start(&["-n", "1"], &["sleep", "4"]).unwrap();
    thread::sleep(Duration::from_secs(1));
    running.signal("STOP").unwrap();
    thread::sleep(Duration::from_secs(4));
    running.signal("CONT").unwrap();
    let ended = running.wait().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.said());
}

#[test]
fn what_is_ignored_stays_ignored() {
    let text = "echo $$ >pid; while :; do sleep 0.05; done";
    let line = ["-n", "1", "--", "sh", "-c", text];
    let running = Running::start_by(&["nohup"], &line, None).unwrap();
    pids(&running, &["pid"]);
    running.signal("HUP").unwrap();
    thread::sleep(Duration::from_millis(500));
    running.signal("TERM").unwrap();
    let ended = running.wait().unwrap();
    assert_eq!(ended.status.code(), Some(143), "{}", ended.said());
}

/// A script starts the command with `&`, and ends it as it would end tcpdump.
#[test]
fn a_script_ends_it_by_sigint() {
    let script = ["sh", "-c", "\"$@\" & echo $! >command; wait $!", "sh"];
    let copy = "echo $$ >pid; exec sleep 600";
    let line = ["-n", "1", "--", "sh", "-c", copy];
    let running = Running::start_by(&script, &line, None).unwrap();
    let command = pids(&running, &["command", "pid"])[0];
    member::signal(command, "INT").unwrap();
    let ended = running.wait().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", ended.said());
}

#[test]
fn copies_are_suspended_and_go_on_with_the_command() {
    // A shell that waits in vfork(2) does not stop. So this shell replaces itself by sleep(1)
    // instead of starting it.
    let text = "echo $$ >pid; exec sleep 600";
    let running = Running::start(&["-n", "1"], &["sh", "-c", text]).unwrap();
    let copy = pids(&running, &["pid"])[0];
    let own = running.process.id();
    running.signal("TSTP").unwrap();
    await_state(own, &[Some('T')]);
    await_state(copy, &[Some('T')]);
    running.signal("CONT").unwrap();
    await_state(copy, &[Some('S'), Some('R')]);
    running.signal("TERM").unwrap();
    assert_eq!(running.wait().unwrap().status.code(), Some(143));
}

/// A script that leaves one process in its process group and one in another session. Both processes
/// ignore SIGTERM.
const LEAVES: &str = "trap '' TERM; sleep 600 & echo $! >group; setsid sh -c 'echo $$ >away; exec sleep 600' & \
    while [ ! -s away ]; do sleep 0.02; done;";

#[test]
fn nothing_that_a_copy_started_outlives_it() {
    let running = Running::start(&["-n", "1"], &["sh", "-c", LEAVES]).unwrap();
    let left = pids(&running, &["group", "away"]);
    let ended = running.wait().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.said());
    for &pid in left.iter().filter(|&&pid| state(pid).is_some()) {
        // The command has sent SIGKILL to the process, but on a busy machine the process may not
        // have run and ended yet.
        assert!(ended.said().contains("can't be ended"), "{}", ended.said());
        await_state(pid, &[None]);
    }
    let said = format!("copy 0 went to the background ({})", left[1]);
    assert!(ended.said().contains(&said), "{}", ended.said());
    assert!(
        !ended.said().contains("still has the copy's output"),
        "{}",
        ended.said()
    );
}

#[test]
fn what_is_left_is_gone_before_a_restart() -> Result<()> {
    let text = "if [ -e old ]; then kill -0 $(cat old) && echo there || echo gone; exit 0; fi; \
        sleep 600 & echo $! >old; exit 1";
    let running = Running::start(&["-n", "1", "--restart"], &["sh", "-c", text])?;
    let ended = running.wait()?;
    assert_eq!(ended.stdout(), b"gone\n", "{}", ended.said());
    Ok(())
}

#[test]
fn the_guard_ends_groups_that_are_deaf() {
    let text = format!("{LEAVES} while :; do sleep 0.05; done");
    let running = Running::start(&["-n", "1"], &["sh", "-c", &text]).unwrap();
    let left = pids(&running, &["group", "away"]);
    member::signal(running.process.id(), "KILL").unwrap();
    for pid in left {
        await_state(pid, &[None]);
    }
}

#[test]
#[ignore = "needs root: network namespaces"]
fn channels_are_as_before_when_copies_have_dropped_their_privileges() -> Result<()> {
    netns::within_new(|| {
        Veth::new(NEAR, FAR, 4)?;
        let rx = || anyhow::Ok(channels::read(&Device::open(FAR)?)?.rx);
        let variable = ["env", "PCAP_CHANNEL_run_b=2"];
        // Do not use `-w /dev/null`: with -Z, tcpdump would make the user nobody the owner of
        // /dev/null.
        let tcpdump = format!("exec tcpdump -Z nobody -i {FAR} -w - >/dev/null");
        let line = ["-n", "2", "--cpus", "none", "--", "sh", "-c", &tcpdump];
        let running = Running::start_by(&variable, &line, None)?;
        running.wait_until_says("0: tcpdump: listening", 1)?;
        running.wait_until_says("1: tcpdump: listening", 1)?;
        assert_eq!(rx()?, 2);
        running.stop()?;
        assert_eq!(rx()?, 4);
        Ok(())
    })
}
