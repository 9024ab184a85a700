//! `fanpcap group` on groups with real members. The tests check its table, its changes of weights
//! and drains, and its message on groups that it can't show.
#![forbid(unsafe_code)]

use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use fanpcap_linux::process::stat;
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_testkit::{Member, Program, Scratch, Veth, await_for, member, netns};
use serde_json::Value;

#[path = "pages/json.rs"]
mod json_page;

const COMMAND: &str = env!("CARGO_BIN_EXE_fanpcap");
const PAGE: &str = include_str!("../../../docs/group-json.md");

/// Runs the command on group 7 of `fgrp1`.
fn group(arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(COMMAND);
    command.args(["group", "fgrp1", "7"]).args(arguments);
    Ok(command.output()?)
}

fn group_json() -> Result<Value> {
    let told: Value = serde_json::from_slice(&group(&["--json"])?.stdout)?;
    json_page::check(PAGE, &told)?;
    Ok(told)
}

/// The output of a command that must succeed or fail.
fn said(output: &Output, succeeds: bool) -> Result<String> {
    let said = [&output.stdout[..], &output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    ensure!(output.status.success() == succeeds, "{said}");
    Ok(said)
}

/// Starts members of group 7 one after another.
fn start(scratch: &Scratch, count: usize, mode: &str) -> Result<Vec<Member>> {
    let start = |number: usize| {
        let file = scratch.file(&format!("{number}.pcap"));
        let program = Program::tcpdump("fgrp1", file)?.group(7, mode);
        let started = program.start(scratch)?;
        member::wait_for_members(7, number)?;
        Ok(started)
    };
    (1..=count).map(start).collect()
}

fn within(test: impl FnOnce(&Scratch) -> Result<()> + Send) -> Result<()> {
    netns::within_new(|| {
        Veth::new("fgrp0", "fgrp1", 1)?;
        test(&Scratch::new()?)
    })
}

/// Waits until the slots have these states and own these numbers of buckets. Returns the command's
/// JSON.
fn await_slots(expected: &[(&str, u64)]) -> Result<Value> {
    await_for("the slots", LIMIT, || {
        let told = group_json()?;
        let slots = told["slots"].as_array().context("slots")?;
        let is_it = slots.len() == expected.len()
            && slots.iter().zip(expected).all(|(slot, (state, buckets))| {
                slot["state"] == *state && slot["buckets"] == *buckets
            });
        Ok(is_it.then_some(told))
    })
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn who_owns_how_much_and_who_is_gone_is_shown() -> Result<()> {
    within(|scratch| {
        let members = start(scratch, 3, "flow")?;
        let told = await_slots(&[("live", 1366), ("live", 1365), ("live", 1365)])?;
        assert_eq!(
            (&told["mode"], &told["is_steered"]),
            (&"flow".into(), &true.into())
        );
        assert_eq!(told["slots"][1]["pid"], members[1].pid());
        assert_eq!(told["slots"][1]["program"], "tcpdump");
        assert_eq!(told["slots"][0]["share_percent"], 33.35);
        members[1].signal("KILL")?;
        let told = await_slots(&[("live", 2048), ("placeholder", 0), ("live", 2048)])?;
        assert_eq!(told["gone"]["members_total"], 1);
        assert_eq!(told["last_moved_buckets"], 1365);
        ensure!(told["placeholders_ring_bytes"].as_u64() > Some(0), "{told}");
        let reader = told["slots"][1]["heir_slot"].as_u64();
        ensure!([Some(0), Some(2)].contains(&reader), "{told}");
        let page = said(&group(&[])?, true)?;
        for line in [
            "fgrp1 group 7: flow, 2 members, 1 slot of members that are gone (",
            "SLOT  STATE                   BUCKETS  SHARE  WEIGHT  SINCE",
            &format!(
                "   1  placeholder, read by {}        0   0.0%",
                reader.unwrap_or(9)
            ),
            " ago: 1365 buckets moved",
            "gone so far: 1, which had received 0 packets (0 dropped, ",
        ] {
            ensure!(page.contains(line), "{line} in:\n{page}");
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_member_is_drained_and_gets_its_share_back() -> Result<()> {
    within(|scratch| {
        let members = start(scratch, 3, "flow")?;
        await_slots(&[("live", 1366), ("live", 1365), ("live", 1365)])?;
        let pids: Vec<String> = members.iter().map(|it| it.pid().to_string()).collect();
        let drained = said(&group(&["--drain", &pids[1]])?, true)?;
        ensure!(
            drained.contains("its 1365 buckets were given to other members"),
            "{drained}"
        );
        ensure!(drained.contains("it gets no more packets"), "{drained}");
        await_slots(&[("live", 2048), ("drained", 0), ("live", 2048)])?;
        let several = said(&group(&["--drain", "tcpdump"])?, false)?;
        ensure!(several.contains("is several members"), "{several}");
        said(&group(&["--drain", "slot:2"])?, true)?;
        let last = said(&group(&["--drain", &pids[0]])?, false)?;
        ensure!(
            last.contains("no other member would take its packets"),
            "{last}"
        );
        said(&group(&["--drain", &pids[1], "--undo"])?, true)?;
        let live = said(&group(&["--drain", &pids[1], "--undo"])?, false)?;
        ensure!(live.contains("is not drained: its weight is 1"), "{live}");
        said(&group(&["--weigh", "slot:2=2"])?, true)?;
        await_slots(&[("live", 1024), ("live", 1024), ("live", 2048)])?;
        Ok(())
    })
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_balanced_group_says_what_its_rounds_have_found() -> Result<()> {
    within(|scratch| {
        let _members = start(scratch, 2, "flow+balance")?;
        let told = await_slots(&[("live", 2048), ("live", 2048)])?;
        let balance = &told["balance"];
        assert_eq!(balance["rounds_total"], 0);
        assert_eq!(balance["moves_live_flows"], false);
        let page = said(&group(&[])?, true)?;
        let line = "balanced: no round yet; buckets without live flows may move";
        ensure!(page.contains(line), "{page}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_group_of_the_kernels_modes_has_members_and_no_table() -> Result<()> {
    within(|scratch| {
        let members = start(scratch, 2, "hash")?;
        let told = group_json()?;
        assert_eq!(
            (&told["is_steered"], &told["members_total"]),
            (&false.into(), &2.into())
        );
        let page = said(&group(&[])?, true)?;
        ensure!(page.contains("of the kernel has no table"), "{page}");
        let pid = members[0].pid().to_string();
        ensure!(page.contains(&format!("{pid}  tcpdump")), "{page}");
        let refused = said(&group(&["--drain", &pid])?, false)?;
        ensure!(
            refused.contains("members have no shares that could be changed"),
            "{refused}"
        );
        let mut other = Command::new(COMMAND);
        let none = said(&other.args(["group", "fgrp1", "8"]).output()?, false)?;
        ensure!(
            none.contains("no group 8 on fgrp1") && none.contains("it has 7"),
            "{none}"
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn all_groups_and_those_of_a_device_are_listed() -> Result<()> {
    within(|scratch| {
        let run = |line: &str| Command::new(COMMAND).args(line.split(' ')).output();
        let none = said(&run("group")?, true)?;
        assert_eq!(none, "no groups in this network namespace\n");
        let _members = start(scratch, 2, "flow")?;
        let rows = "\
DEVICE  GROUP  MODE  MEMBERS  PROGRAMS
fgrp1       7  flow        2  tcpdump
";
        for line in ["group", "group fgrp1", "group -i fgrp1"] {
            assert_eq!(said(&run(line)?, true)?, rows, "{line}");
        }
        for line in [
            "group --json",
            "group fgrp1 --json",
            "group -i fgrp1 7 --json",
        ] {
            let told: Value = serde_json::from_slice(&run(line)?.stdout)?;
            json_page::check(PAGE, &told)?;
            assert_eq!(
                (&told["group"], &told["members_total"]),
                (&7.into(), &2.into())
            );
            assert_eq!(
                told["slots"][0]["library_version"],
                env!("CARGO_PKG_VERSION")
            );
            assert_eq!(told["slots"][0]["library_is_replaced"], false);
        }
        for (line, why) in [
            ("group 7", "'fanpcap group DEV 7'"),
            ("group fgrp1 x", "a group is a number from 0 to 65535"),
            (
                "group fgrp1 --drain slot:0",
                "which group? write 'fanpcap group DEV GROUP'",
            ),
            (
                "group -i fgrp1 fgrp0 7",
                "both 'fgrp1' and 'fgrp0' are devices",
            ),
        ] {
            let refused = said(&run(line)?, false)?;
            ensure!(refused.contains(why), "{line}: {refused}");
        }
        Ok(())
    })
}

/// `fanpcap serve` has founded the group, first without a member and then with one.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_founded_group_is_shown_with_its_founder() -> Result<()> {
    within(|scratch| {
        let mut serve = Command::new(COMMAND);
        serve.args(["serve", "7@fgrp1"]);
        let mut served = serve.env("PCAP_CONFIG", "/dev/null").spawn()?;
        let shown = show_founded(scratch, served.id());
        served.kill()?;
        served.wait()?;
        shown
    })
}

fn show_founded(scratch: &Scratch, pid: u32) -> Result<()> {
    let run = |line: &str| Command::new(COMMAND).args(line.split(' ')).output();
    let founder = format!("founded by fanpcap (process {pid})");
    let rows = format!(
        "DEVICE  GROUP  MODE  MEMBERS  PROGRAMS\nfgrp1       7  flow        0  {founder}\n"
    );
    await_for("the founder", LIMIT, || {
        let told = said(&run("group")?, true)?;
        Ok((told == rows).then_some(()))
    })?;
    let told = said(&group(&[])?, true)?;
    let expected = format!("fgrp1 group 7: flow, 0 members\n{founder}, waits for members\n");
    ensure!(told == expected, "{told}");
    let told = group_json()?;
    let fields = ["members_total", "founder_pid"].map(|it| told[it].as_u64());
    ensure!(fields == [Some(0), Some(pid.into())], "{told:#}");
    ensure!(told["slots"] == Value::Array(Vec::new()), "{told:#}");
    let told = said(&group(&["--drain", "1"])?, false)?;
    ensure!(told.contains("the group has no member yet"), "{told}");
    let told = said(&run("group fgrp1 8")?, false)?;
    ensure!(told.contains("it has 7"), "{told}");
    let told = String::from_utf8(run("doctor fgrp1")?.stdout)?;
    ensure!(told.contains("(groups: 1, members: 0)"), "{told}");
    ensure!(!told.contains("No group uses"), "{told}");
    let told = said(&run("metrics fgrp1")?, true)?;
    let is_empty = |it: &str| it.starts_with("fanpcap_group_members{") && it.ends_with("} 0");
    ensure!(told.lines().any(is_empty), "{told}");
    let _member = start(scratch, 1, "flow")?;
    let told = said(&run("group")?, true)?;
    ensure!(
        told.ends_with(&format!("1  tcpdump; {founder}\n")),
        "{told}"
    );
    let told = said(&group(&[])?, true)?;
    ensure!(told.contains(&format!("1 member\n{founder}\n")), "{told}");
    Ok(())
}

/// A newcomer is stopped while it holds the group's lock and changes the group.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn the_process_that_has_the_groups_lock_is_named() -> Result<()> {
    within(|scratch| {
        let _members = start(scratch, 2, "flow")?;
        await_slots(&[("live", 2048), ("live", 2048)])?;
        let object = scratch.file("stops.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run/c/stops.c");
        let mut compiler = Command::new("cc");
        let compiled = compiler.args(["-shared", "-fPIC", "-o"]).arg(&object);
        ensure!(compiled.arg(source).status()?.success(), "cc failed");
        let program = Program::tcpdump("fgrp1", scratch.file("stops.pcap"))?.group(7, "flow");
        let newcomer = program.set("LD_PRELOAD", &object).spawn(scratch)?;
        let pid = newcomer.pid();
        let line = format!("process {pid}, which is stopped, holds the group's lock");
        // The newcomer stops at each lock that it takes. If it is not the group's lock, let the
        // newcomer continue.
        let named = await_for("the newcomer to have the group's lock", LIMIT, || {
            let state = stat::Stat::of(pid).context("it has ended")?;
            if !state.is_stopped() {
                return Ok(None);
            }
            let told = group_json()?["under_way"].take();
            if told.as_str().is_some_and(|it| it.ends_with(&line)) {
                return Ok(Some(said(&group(&[])?, true)?));
            }
            newcomer.signal("CONT")?;
            Ok(None)
        })?;
        let is_it = |it: &str| it.starts_with("under way: ") && it.ends_with(&line);
        ensure!(named.lines().any(is_it), "{named}");
        newcomer.signal("KILL")?;
        await_for("the lock to be free", LIMIT, || {
            Ok(group_json()?["under_way"].is_null().then_some(()))
        })
    })
}

/// The first member has no CAP_BPF. The second one has it, and another executable.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn who_began_a_group_without_flow_is_shown_with_the_reason() -> Result<()> {
    within(|scratch| {
        let first = Program::new("setpriv", "listening on")?;
        let first = first.args([
            "--bounding-set=-bpf,-sys_admin",
            "--inh-caps=-bpf,-sys_admin",
        ]);
        let first = first.args(["--", "tcpdump", "-n", "-Z", "root", "-i", "fgrp1", "-w"]);
        let first = first.arg(scratch.file("first.pcap")).set("PCAP_GROUP", "7");
        let first = first.start(scratch)?;
        let tool = scratch.file("tool");
        std::fs::copy("/usr/bin/tcpdump", &tool)?;
        let second = Program::new(&tool, "listening on")?;
        let second = second.args(["-n", "-Z", "root", "-i", "fgrp1", "-w"]);
        let second = second
            .arg(scratch.file("second.pcap"))
            .set("PCAP_GROUP", "7");
        let second = second.start(scratch)?;
        member::wait_for_members(7, 2)?;
        let why = format!("tcpdump (process {}) has no CAP_BPF for flow", first.pid());
        let told = group_json()?;
        assert_eq!(
            (&told["mode"], &told["hash_because"]),
            (&"hash".into(), &why.as_str().into())
        );
        let whole = said(&group(&[])?, true)?;
        let list = Command::new(COMMAND).args(["group", "fgrp1"]).output()?;
        for page in [whole, said(&list, true)?] {
            let line = page.lines().last().unwrap_or_default();
            ensure!(
                line.ends_with(&format!("hash, not flow, because {why}")),
                "{page}"
            );
        }
        let warned = second.said()?;
        let warning = "in mode hash, because it has no CAP_BPF for flow: each sees";
        ensure!(warned.contains(warning), "{warned}");
        drop(first);
        assert_eq!(group_json()?["hash_because"], Value::Null);
        Ok(())
    })
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn another_user_is_told_why_the_table_is_not_shown() -> Result<()> {
    within(|scratch| {
        let _members = start(scratch, 2, "flow")?;
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid",
            "65534",
            "--clear-groups",
            COMMAND,
            "group",
            "fgrp1",
            "7",
        ]);
        let refused = said(&command.output()?, false)?;
        for part in ["group 7 on fgrp1 does not show its table", "pidfd_getfd"] {
            ensure!(refused.contains(part), "{refused}");
        }
        Ok(())
    })
}
