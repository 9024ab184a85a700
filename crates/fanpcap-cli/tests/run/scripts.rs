//! Copies of programs that never capture: their output, their ends, and what the command reports of
//! them.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use anyhow::Result;
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::library::library_dir;

use crate::{Running, stand_in};

/// A shell script in which `%i` is the copy's number.
fn script(options: &[&str], text: &str) -> Result<Running> {
    Running::start(
        &[&["--group", "4711"], options].concat(),
        &["sh", "-c", text],
    )
}

#[test]
fn lines_stay_whole_and_streams_apart() {
    let text = "for n in 1 2 3 4 5 6 7 8 9; do printf 'half of %%s, ' %i; sleep 0.01; echo $n; done; printf end; echo oops >&2";
    let ended = script(&["-n", "3", "--prefix"], text)
        .unwrap()
        .wait()
        .unwrap();
    let out = String::from_utf8(ended.stdout()).unwrap();
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    let of = |copy: usize| {
        let halves = (1..=9).map(move |n| format!("{copy}: half of {copy}, {n}"));
        std::iter::once(format!("{copy}: end")).chain(halves)
    };
    assert_eq!(lines, (0..3).flat_map(of).collect::<Vec<_>>());
    for copy in 0..3 {
        assert!(
            ended.said().contains(&format!("{copy}: oops\n")),
            "{}",
            ended.said()
        );
    }
}

#[test]
fn a_line_of_megabytes_is_cut_and_holds_nobody_up() {
    let text =
        "head -c 3000000 /dev/zero | tr '\\0' %i; test %i = 0 && sleep 600; echo; echo short";
    let running = script(&["-n", "3"], text).unwrap();
    let stdout = running.scratch.file("stdout");
    await_for("the lines of the others", LIMIT, || {
        let out = fs::read_to_string(&stdout)?;
        Ok((out.matches("short\n").count() == 2).then_some(()))
    })
    .unwrap();
    running.signal("TERM").unwrap();
    let ended = running.wait().unwrap();
    let out = String::from_utf8(ended.stdout()).unwrap();
    for byte in ['0', '1', '2'] {
        let lines = out.lines().filter(|line| line.starts_with(byte));
        let lens: Vec<usize> = lines.map(str::len).collect();
        assert_eq!(lens, [1 << 20, 1 << 20, 3_000_000 - (2 << 20)]);
        assert_eq!(out.matches(byte).count(), 3_000_000);
    }
    let said = ended.said();
    assert!(
        said.contains("copy 1 prints lines of more than 1 MiB"),
        "{said}"
    );
}

#[test]
fn progress_with_carriage_returns_is_seen_as_it_comes() {
    let running = script(&["-n", "1"], "printf '10%%%%\\r20%%%%'; sleep 600").unwrap();
    let stdout = running.scratch.file("stdout");
    await_for("the first step", LIMIT, || {
        Ok((fs::read_to_string(&stdout)? == "10%\r").then_some(()))
    })
    .unwrap();
}

#[test]
fn signals_go_on_and_the_exit_status_is_one() {
    let ready = "echo ready; while :; do sleep 0.05; done";
    for (trap, signal, code) in [
        ("trap 'exit 0' INT;", "INT", 0),
        ("trap 'exit 0' TERM;", "TERM", 0),
        ("trap 'exit %i' USR1;", "USR1", 1),
        ("trap 'exit 7' USR2;", "USR2", 7),
        ("trap 'exit 5' QUIT;", "QUIT", 5),
        ("", "TERM", 143),
        ("", "HUP", 129),
    ] {
        let running = script(&["-n", "2"], &format!("{trap} {ready}")).unwrap();
        let stdout = running.scratch.file("stdout");
        await_for("both copies", LIMIT, || {
            Ok((fs::read_to_string(&stdout)?.matches("ready").count() == 2).then_some(()))
        })
        .unwrap();
        running.signal(signal).unwrap();
        let ended = running.wait().unwrap();
        assert_eq!(
            ended.status.code(),
            Some(code),
            "{trap} {signal}: {}",
            ended.said()
        );
        assert_eq!(ended.status.signal(), None);
    }
}

#[test]
fn the_first_failure_by_itself_is_the_exit_status() {
    let text = "test %i = 1 && kill -9 $$; while [ ! -e go ]; do sleep 0.05; done; exit 3";
    let running = script(&["-n", "2"], text).unwrap();
    running
        .wait_until_says(
            "copy 1 ended (signal: 9 (SIGKILL)); the other copies continue",
            1,
        )
        .unwrap();
    running.scratch.write("go", "").unwrap();
    let ended = running.wait().unwrap();
    assert_eq!(ended.status.code(), Some(137), "{}", ended.said());
    let ends = |copy: usize| ended.summary()["copies"][copy]["ends"][0].clone();
    assert_eq!(ends(1)["signal"], 9);
    assert_eq!(ends(0)["status"], 3);
}

#[test]
fn a_program_that_never_captures_is_warned_about() {
    let running = script(&["-n", "1"], "exec sleep 600").unwrap();
    running
        .wait_until_says("copy 0 has not joined the group: ", 1)
        .unwrap();
    running
        .wait_until_says("sleep has not loaded libpcap", 1)
        .unwrap();
    running.signal("TERM").unwrap();
    let ended = running.wait().unwrap();
    assert_eq!(ended.status.code(), Some(143));
    assert!(ended.summary()["total"]["received"].is_null());
    assert!(ended.said().contains("unknown"), "{}", ended.said());
}

#[test]
fn captures_that_no_argument_names_are_told() {
    let text = "exec 3> x%i.pcap; exec sleep 600";
    let running = script(&["-n", "1", "--restart"], text).unwrap();
    running
        .wait_until_says(
            "x0.pcap, which the arguments do not name with %i: a restart",
            1,
        )
        .unwrap();
    running.signal("TERM").unwrap();
    running.wait().unwrap();
}

#[test]
fn files_that_are_no_captures_are_named() {
    let running = Running::start(
        &["-n", "1", "--merge", "all.pcap"],
        &["sh", "-c", "echo text > $0", "%i.argus"],
    );
    let ended = running.unwrap().wait().unwrap();
    let said = ended.said();
    assert!(
        said.contains("none of them is a capture: 0.argus"),
        "{said}"
    );
}

#[test]
fn files_that_are_left_out_of_a_merge_are_named() {
    let head = r"\324\303\262\241\2\0\4\0\0\0\0\0\0\0\0\0\0\0\4\0\1\0\0\0";
    let text = format!("printf '{head}' > %i.pcap; echo text > %i.log");
    let options = ["-n", "1", "--merge", "all.pcap"];
    let command = ["sh", "-c", &text, "%i.pcap", "%i.log"];
    let ended = Running::start(&options, &command).unwrap().wait().unwrap();
    assert!(ended.scratch.file("all.pcap").exists(), "{}", ended.said());
    let told = "--merge: 0.log is left out, because it is no capture";
    assert!(ended.said().contains(told), "{}", ended.said());
}

#[test]
fn a_copys_file_is_not_the_merged_one_by_whatever_name() {
    for to in ["0.pcap", "./0.pcap", "/proc/self/cwd/1.pcap"] {
        let ended = Running::start(&["--merge", to], &["touch", "%i.pcap"]);
        let ended = ended.unwrap().wait().unwrap();
        assert_eq!(ended.status.code(), Some(1), "{to}");
        assert!(!ended.scratch.file("0.pcap").exists(), "{to}");
        assert!(
            ended.said().contains("writes that file"),
            "{}",
            ended.said()
        );
    }
}

#[test]
fn nothing_stays_when_nobody_reads_the_merged_capture() {
    let scratch = fanpcap_testkit::Scratch::new().unwrap();
    let library = library_dir().or_else(|_| stand_in(&scratch)).unwrap();
    let temporary = scratch.file("tmp");
    fs::create_dir(&temporary).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fanpcap"));
    command.args(["run", "-q", "--merge", "-", "--group", "4711", "--"]);
    // The header of a pcap file. No packets follow it.
    let head = r"\324\303\262\241\2\0\4\0\0\0\0\0\0\0\0\0\0\0\4\0\1\0\0\0";
    command.args(["sh", "-c", &format!("printf '{head}'; sleep 1")]);
    command
        .env("FANPCAP_LIB_DIR", library)
        .env("TMPDIR", &temporary);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("standard output: Broken pipe"), "{said}");
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "{said}");
}

#[test]
fn copies_have_the_limit_of_open_files_that_was_there() {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -Sn 64; exec \"$0\" \"$@\""]);
    command.arg(env!("CARGO_BIN_EXE_fanpcap"));
    command.args(["run", "-q", "-n", "40", "--cpus", "none", "--group", "4711"]);
    command.args(["--", "sh", "-c", "sleep 1; ulimit -Sn"]);
    let scratch = fanpcap_testkit::Scratch::new().unwrap();
    let library = library_dir().or_else(|_| stand_in(&scratch)).unwrap();
    let output = command.env("FANPCAP_LIB_DIR", library).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(output.stdout, "64\n".repeat(40).as_bytes());
}

#[test]
fn mistakes_are_told_before_anything_is_started() {
    for (options, complaint) in [
        (vec!["--fanout", "hsah"], "did you mean 'hash'?"),
        (vec!["--fanout", "main = tpc >-> steer_flow"], "tpc"),
        (vec!["--device", "nosuch"], "the devices here are: lo"),
        (vec!["--cpus", "3-1"], "a list of CPUs"),
        (vec!["--cpus", "60000"], "may not run on CPU 60000"),
        (vec!["--merge", "no/such/all.pcap"], "no/such/all.pcap"),
    ] {
        let ended = Running::start(&options, &["touch", "started"])
            .unwrap()
            .wait()
            .unwrap();
        assert_eq!(ended.status.code(), Some(1));
        assert!(ended.said().contains(complaint), "{}", ended.said());
        assert!(!ended.scratch.file("started").exists());
    }
    for (options, line, complaint) in [
        (
            &[][..],
            "-w all.pcap",
            "all 2 copies would write all.pcap, and each would overwrite what the others wrote: write -w all.%i.pcap",
        ),
        (
            &["--merge", "m.pcap"],
            "-n",
            "--merge: nothing would be merged: tcpdump writes no capture here",
        ),
        (&[], "-nnei nosuch", "there is no device nosuch here"),
        (
            &["-i", "lo"],
            "-nnei any",
            "-i lo: the program captures on any",
        ),
    ] {
        let command: Vec<&str> = line.split(' ').collect();
        let stand_in = "PATH=.:$PATH; printf '#!/bin/sh\\ntouch started\\n' > tcpdump; chmod +x tcpdump; exec \"$@\"";
        let line = [&["--group", "4711"], options, &["--", "tcpdump"], &command].concat();
        let ended = Running::start_by(&["sh", "-c", stand_in, "sh"], &line, None).unwrap();
        let ended = ended.wait().unwrap();
        assert_eq!(ended.status.code(), Some(1), "{}", ended.said());
        assert!(ended.said().contains(complaint), "{}", ended.said());
        assert!(!ended.scratch.file("started").exists());
    }
    let ended = script(&["--merge", "all.pcap"], "true")
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        ended.said().contains("no copy wrote a capture"),
        "{}",
        ended.said()
    );
    for (line, code, complaint) in [
        (
            ["--", "no-such-program"],
            127,
            "no-such-program: no such program",
        ),
        (["--", "/etc/passwd"], 126, "/etc/passwd: not executable"),
        (["--json=no/such", "true"], 1, "--json: writing no/such"),
        (["--bogus", "true"], 2, "unexpected argument '--bogus'"),
    ] {
        let ended = Running::start_by(&[], &line, None).unwrap().wait().unwrap();
        assert_eq!(ended.status.code(), Some(code), "{}", ended.said());
        assert!(ended.said().contains(complaint), "{}", ended.said());
        assert!(!ended.said().contains("in group"), "{}", ended.said());
    }
}

#[test]
fn settings_that_do_nothing_are_told() {
    let line = ["-n", "1", "--group", "4711", "--", "true"];
    let ended = Running::start_by(&["env", "PCAP_GROUP_eth0=5", "PCAP_FANOUT=lb"], &line, None);
    let ended = ended.unwrap().wait().unwrap();
    let nothing =
        |name: &str| format!("{name} is set and does nothing here: the copies are in group 4711, ");
    let said = ended.said();
    assert!(said.contains(&nothing("PCAP_GROUP_eth0")), "{said}");
    assert!(!said.contains(&nothing("PCAP_FANOUT")), "{said}");
    assert!(
        said.contains("in group 4711, lb (PCAP_FANOUT=lb)"),
        "{said}"
    );
    let line = [&["--fanout", "hash"][..], &line].concat();
    let ended = Running::start_by(&["env", "PCAP_FANOUT=lb"], &line, None);
    let said = ended.unwrap().wait().unwrap().said();
    assert!(said.contains(&nothing("PCAP_FANOUT")), "{said}");
    assert!(said.contains("in group 4711, hash; "), "{said}");
}

#[test]
fn a_group_of_the_config_file_that_the_copies_do_not_join_is_told() {
    let scratch = fanpcap_testkit::Scratch::new().unwrap();
    let file = scratch.write("pcap.conf", "group_lo = 11\n").unwrap();
    let config = format!("PCAP_CONFIG={}", file.display());
    let said = |line: &[&str]| {
        let ended = Running::start_by(&["env", &config], line, None).unwrap();
        ended.wait().unwrap().said()
    };
    let told = "pcap.conf:1: lo has group 11, which these copies do not join: '--group 11' makes";
    let free = said(&["-n", "1", "-i", "lo", "--", "true"]);
    assert!(free.contains(told), "{free}");
    let same = said(&["-n", "1", "-i", "lo", "--group", "11", "--", "true"]);
    assert!(!same.contains("which these copies"), "{same}");
}

/// `fanpcap run` must not pass its default mode to the copies. The mode would become a request, and
/// a copy without CAP_BPF would fail to join.
#[test]
fn a_mode_that_nobody_asked_for_is_not_handed_on() {
    let ended = script(&["-n", "1"], "echo group $PCAP_GROUP, mode $PCAP_FANOUT.").unwrap();
    let ended = ended.wait().unwrap();
    assert_eq!(ended.stdout(), b"group 4711, mode .\n", "{}", ended.said());
}

#[test]
fn a_command_needs_no_dashes_before_it() {
    let line = ["-n", "1", "sh", "-c", "echo $1 $2", "-n", "--restart", "--"];
    let ended = Running::start_by(&[], &line, None).unwrap().wait().unwrap();
    assert_eq!(ended.stdout(), b"--restart --\n", "{}", ended.said());
}

#[test]
fn copies_run_where_they_are_put_and_find_what_leads_them_here() {
    let cpu = fanpcap_testkit::cpus().unwrap()[0].to_string();
    let text =
        "grep Cpus_allowed_list /proc/self/status; echo $PCAP_GROUP $PCAP_FANOUT $LD_LIBRARY_PATH";
    let options = ["-n", "2", "--cpus", &cpu, "--fanout", "RR + rollover"];
    let ended = script(&options, text).unwrap().wait().unwrap();
    let out = String::from_utf8(ended.stdout()).unwrap();
    let pinned = format!("Cpus_allowed_list:\t{cpu}\n");
    assert_eq!(out.matches(&pinned).count(), 2, "{out}");
    assert_eq!(out.matches("4711 lb+rollover /").count(), 2, "{out}");
    let chosen =
        format!("2 copies in group 4711, lb+rollover; CPUs {cpu}, {cpu} (as asked; 1 for 2");
    assert!(ended.said().contains(&chosen), "{}", ended.said());
}

#[test]
fn a_copy_that_came_back_and_then_ended_well_has_not_failed() {
    let text =
        "mkdir once && exit 4; trap 'exit 0' TERM; echo back >&2; while :; do sleep 0.05; done";
    let running = script(&["-n", "1", "--restart", "--prefix"], text).unwrap();
    running.wait_until_says("0: back", 1).unwrap();
    running.signal("TERM").unwrap();
    let ended = running.wait().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.said());
    let copy = &ended.summary()["copies"][0];
    assert!(
        copy["starts"] == 2 && copy["ends"][0]["status"] == 4,
        "{copy}"
    );
    assert!(
        ended
            .said()
            .contains("copy 0 ended (exit status: 4); it is started again")
    );
}
