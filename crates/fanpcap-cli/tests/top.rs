//! `fanpcap top` on real members: its output, and its screen in a separate terminal.
#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, anyhow, ensure};
use fanpcap_pcap::Library;
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::{
    Injector, Member, Program, Scratch, Veth, await_for, library, member, netns, veth,
};
use screen::Screen;
use serde_json::Value;
#[path = "top/waiting.rs"]
mod waiting;
#[path = "pages/json.rs"]
mod json_page;
#[path = "top/screen.rs"]
mod screen;

const PAGE: &str = include_str!("../../../docs/top-json.md");
const COMMAND: &str = env!("CARGO_BIN_EXE_fanpcap");
const GROUP: u16 = 7;
const FRAMES: u64 = 400;

/// Two members of a group on `ftop1`, a program on this device that does not use our library, and a
/// socket that sends to the device.
struct Wire {
    scratch: Scratch,
    members: Vec<Member>,
    foreign: Member,
    injector: Injector,
    frames: Vec<Frame>,
}

fn on_wire(test: impl FnOnce(&Wire) -> Result<()> + Send) -> Result<()> {
    netns::within_new(|| {
        Veth::new("ftop0", "ftop1", 1)?;
        let scratch = Scratch::new()?;
        let start = |number: u32| {
            let file = scratch.file(&format!("{number}.pcap"));
            let program = Program::tcpdump("ftop1", file)?.group(GROUP, "hash");
            program.start(&scratch)
        };
        let members = vec![start(0)?, start(1)?];
        member::wait_for_members(GROUP, 2)?;
        // This tcpdump uses the system's libpcap. So it has no page, and only the kernel reports
        // its socket.
        let foreign = Program::tcpdump("ftop1", scratch.file("foreign.pcap"))?
            .set("LD_LIBRARY_PATH", "")
            .start(&scratch)?;
        let wire = Wire {
            injector: Injector::open("ftop0")?,
            frames: traffic::frames(3, &traffic::flows(3, 16), 0..FRAMES)?,
            scratch,
            members,
            foreign,
        };
        test(&wire)
    })
}

impl Wire {
    fn send(&self) -> Result<()> {
        for frame in &self.frames {
            self.injector.send(&frame.bytes)?;
        }
        Ok(())
    }

    /// Makes the members read their counters by a signal that requests tcpdump's summary.
    fn read_counters(&self) -> Result<()> {
        self.members
            .iter()
            .try_for_each(|member| member.signal("USR1"))
    }

    fn pids(&self) -> Vec<u64> {
        let mut pids: Vec<u64> = self.members.iter().map(|one| one.pid().into()).collect();
        pids.sort_unstable();
        pids
    }
}

fn device<'v>(view: &'v Value, name: &str) -> Result<&'v Value> {
    let mut devices = view["devices"].as_array().context("devices")?.iter();
    let found = devices.find(|device| device["device"] == name);
    found.with_context(|| format!("no {name} in {view}"))
}

fn pids(sockets: &Value) -> Vec<u64> {
    let sockets = sockets.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut pids: Vec<u64> = sockets.iter().filter_map(|it| it["pid"].as_u64()).collect();
    pids.sort_unstable();
    pids
}

fn top(arguments: &[&str]) -> Result<Output> {
    let output = Command::new(COMMAND).arg("top").args(arguments).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    Ok(output)
}

/// The group keeps the socket of a member that is gone as a placeholder, so that the flows of the
/// other member do not move.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_dead_member_of_a_steered_group_is_a_placeholder() {
    netns::within_new(|| {
        Veth::new("ftop0", "ftop1", 1)?;
        let scratch = Scratch::new()?;
        let start = |number: usize| {
            let file = scratch.file(&format!("{number}.pcap"));
            let program = Program::tcpdump("ftop1", file)?.group(GROUP, "flow");
            let member = program.start(&scratch)?;
            member::wait_for_members(GROUP, number)?;
            Ok::<_, anyhow::Error>(member)
        };
        let (first, second) = (start(1)?, start(2)?);
        first.signal("KILL")?;
        await_for("a placeholder", LIMIT, || {
            let view = top_json(&["ftop1"])?;
            let group = &device(&view, "ftop1")?["groups"][0];
            let is_kept = group["placeholders_total"] == 1 && group["members_total"] == 1;
            let ring = group["placeholders_ring_bytes"].as_u64();
            let is_second = pids(&group["members"]) == [u64::from(second.pid())];
            Ok((is_kept && ring > Some(0) && is_second).then_some(()))
        })
    })
    .unwrap();
}

fn top_json(arguments: &[&str]) -> Result<Value> {
    let output = top(&[&["--once", "--json", "--interval", "0.1"], arguments].concat())?;
    let view = serde_json::from_slice(&output.stdout)?;
    json_page::check(PAGE, &view)?;
    Ok(view)
}

#[test]
fn without_a_terminal_it_says_what_to_add() {
    let output = Command::new(COMMAND)
        .arg("top")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("--once"),
        "{said}"
    );
    let unknown = top(&["nosuch0", "--once"]).unwrap_err().to_string();
    assert!(unknown.contains("no device 'nosuch0'"), "{unknown}");
}

#[test]
#[ignore = "needs root: namespaces, packet sockets"]
fn members_their_counters_and_foreign_sockets_are_told() {
    on_wire(|wire| {
        wire.send()?;
        let view = await_for("the members' counters", LIMIT, || {
            wire.read_counters()?;
            let view = top_json(&[])?;
            let group = &device(&view, "ftop1")?["groups"][0];
            Ok((group["received_packets_total"] == FRAMES).then_some(view))
        })?;
        let far = device(&view, "ftop1")?;
        let group = &far["groups"][0];
        assert_eq!(group["group"], GROUP);
        assert_eq!(group["mode"], "hash");
        assert_eq!(pids(&group["members"]), wire.pids());
        for member in group["members"].as_array().context("members")? {
            assert_eq!(member["program"], "tcpdump");
            assert_eq!(member["ours"], true);
            assert_eq!(member["ring_full_drops_total"], 0);
            assert!(
                member["received_packets_total"].as_u64() > Some(0),
                "{member}"
            );
            assert!(member["ring_bytes"].as_u64() >= Some(1 << 20), "{member}");
        }
        assert_eq!(pids(&far["sockets"]), [u64::from(wire.foreign.pid())]);
        assert_eq!(far["sockets"][0]["ours"], false);
        assert_eq!(far["sockets"][0]["received_packets_total"], Value::Null);
        assert!(
            far["received_packets_total"].as_u64() >= Some(FRAMES),
            "{far}"
        );
        // The injector is this test's own socket.
        let near = device(&view, "ftop0")?;
        assert_eq!(pids(&near["sockets"]), [u64::from(std::process::id())]);
        assert_eq!(near["sockets"][0]["protocol"], 0);

        let only = top_json(&["ftop0"])?;
        assert_eq!(only["devices"].as_array().map(Vec::len), Some(1));
        let filtered = top_json(&["--filter", &wire.members[1].pid().to_string()])?;
        let members = &filtered["devices"][0]["groups"][0]["members"];
        assert_eq!(pids(members), [u64::from(wire.members[1].pid())]);
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, packet sockets"]
fn rates_and_shares_come_with_each_interval() {
    on_wire(|wire| {
        let mut top = Command::new(COMMAND)
            .args(["top", "ftop1", "--json", "--interval", "0.2"])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(top.stdout.take().context("its output")?).lines();
        let found = await_for("rates of both members", LIMIT, || {
            wire.send()?;
            wire.read_counters()?;
            let line = lines.next().context("the end of its output")??;
            let view: Value = serde_json::from_str(&line)?;
            json_page::check(PAGE, &view)?;
            let group = view["devices"][0]["groups"][0].clone();
            let both = group["members_with_rates"] == 2 && group["skew"].is_number();
            Ok(both.then_some(group))
        });
        top.kill()?;
        top.wait()?;
        let group = found?;
        let figures = |name: &str| -> Vec<f64> {
            let members = group["members"].as_array().map(Vec::as_slice);
            let members = members.unwrap_or_default().iter();
            members.filter_map(|member| member[name].as_f64()).collect()
        };
        let shares: f64 = figures("share_percent").iter().sum();
        assert!((shares - 100.0).abs() < 0.01, "{group}");
        let sum: f64 = figures("packets_per_second").iter().sum();
        let told = group["packets_per_second"].as_f64().context("a sum")?;
        assert!(sum > 0.0 && (sum - told).abs() < 0.01, "{group}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, packet sockets"]
fn a_table_is_printed_once_without_a_terminal() {
    on_wire(|wire| {
        let output = top(&["--once", "--interval", "0.1", "--sort", "pid"])?;
        let text = String::from_utf8(output.stdout)?;
        for pid in wire.pids() {
            assert!(text.contains(&format!("\n  {pid} tcpdump ")), "{text}");
        }
        assert!(text.contains("\n group 7 hash ("), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, packet sockets"]
fn the_screen_shows_members_and_keys_work_until_q() {
    on_wire(|wire| {
        let mut screen = Screen::open(&wire.scratch, "ftop1")?;
        await_for("both members' shares on the screen", LIMIT, || {
            wire.send()?;
            wire.read_counters()?;
            let lines = screen.lines()?;
            let has_share = |pid: &u64| {
                let name = format!("  {pid} tcpdump ");
                let mut rows = lines.iter().filter(|line| line.starts_with(&name));
                rows.any(|row| row.contains('%'))
            };
            Ok(wire.pids().iter().all(has_share).then_some(()))
        })?;
        screen.wait_for("q quit  s sort")?;
        ensure!(!screen.has_been_left()?, "the terminal was given back");
        screen.press("h")?;
        screen.wait_for("BACKLOG  packets that wait")?;
        screen.press("h/nobody")?;
        screen.wait_for("No row has 'nobody'")?;
        screen.press("\rq")?;
        assert_eq!(screen.end()?, (Some(0), true));
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, packet sockets"]
fn looks_write_what_changed_and_a_new_size_all() {
    on_wire(|wire| {
        let mut screen = Screen::open(&wire.scratch, "ftop1")?;
        let keys = "q quit  s sort";
        screen.wait_for(keys)?;
        await_for("a few looks", LIMIT, || {
            Ok((screen.times_written(" UTC ")? > 3).then_some(()))
        })?;
        ensure!(
            screen.times_written(keys)? == 1,
            "the keys were written again"
        );
        screen.resize(10, 60)?;
        let is_last = |screen: &Screen, row: usize| {
            await_for(&format!("the keys on row {row} alone"), LIMIT, || {
                let lines = screen.lines()?;
                let mut found = (1..).zip(&lines).filter(|(_, line)| line.starts_with(keys));
                Ok((found.next().map(|(row, _)| row) == Some(row)).then_some(()))
            })
        };
        is_last(&screen, 10)?;
        screen.resize(24, 80)?;
        is_last(&screen, 24)?;
        screen.press("q")?;
        assert_eq!(screen.end()?, (Some(0), true));
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, packet sockets"]
fn a_signal_ends_the_screen_and_the_terminal_is_restored() {
    on_wire(|wire| {
        let screen = Screen::open(&wire.scratch, "ftop1")?;
        screen.wait_for("q quit  s sort")?;
        member::signal(screen.pid(), "TERM")?;
        assert_eq!(screen.end()?, (Some(128 + 15), true));
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, packet sockets"]
fn the_screen_ends_with_its_terminal() {
    on_wire(|wire| {
        let screen = Screen::open(&wire.scratch, "ftop1")?;
        screen.wait_for("q quit  s sort")?;
        screen.hang_up()
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, packet sockets"]
fn a_handle_that_is_never_read_is_named() {
    on_wire(|_| {
        let path = library::library_dir()?.join("libpcap.so.0.8");
        let ours = Library::open(&path).map_err(|error| anyhow!("{error:?}"))?;
        let mut created = ours.create("ftop1").map_err(|error| anyhow!("{error:?}"))?;
        let joined = created.fanout(Some(GROUP), Some("hash"));
        joined.map_err(|error| anyhow!("{error:?}"))?;
        let _handle = created.activate().map_err(|error| anyhow!("{error:?}"))?;
        let group = await_for("the mark", LIMIT, || {
            let group = top_json(&["ftop1"])?["devices"][0]["groups"][0].clone();
            Ok((group["members_unread"] == 1).then_some(group))
        })?;
        let members = group["members"].as_array().context("members")?;
        let unread = members.iter().filter(|member| member["is_unread"] == true);
        let pids: Vec<_> = unread.map(|member| member["pid"].as_u64()).collect();
        assert_eq!(pids, [Some(std::process::id().into())]);
        let metrics = Command::new(COMMAND).arg("metrics").output()?;
        let metrics = String::from_utf8(metrics.stdout)?;
        assert!(
            metrics.contains("fanpcap_member_unread_seconds{"),
            "{metrics}"
        );
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_reader_that_has_enough_ends_it() {
    let mut top = Command::new(COMMAND)
        .args(["top", "lo", "--json", "--interval", "0.1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(top.stdout.take());
    let status = await_for("its end", LIMIT, || Ok(top.try_wait()?)).unwrap();
    let mut said = String::new();
    top.stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert!(status.success() && said.is_empty(), "{status}: {said}");
}

#[test]
fn without_a_reader_no_command_panics() {
    for arguments in [
        &["config"][..],
        &["metrics", "lo"],
        &["top", "lo", "--once", "--interval", "0.1"],
        &["--help"],
        &["run"],
    ] {
        let closed = || {
            let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
            drop(reader);
            std::os::fd::OwnedFd::from(writer)
        };
        let mut command = Command::new(COMMAND);
        command.args(arguments).env("PCAP_CONFIG", "/dev/null");
        let output = command.stdout(closed()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
        // Run the command also with no reader of its standard output and standard error. If the
        // command panicked, its status would be 101.
        let status = command.stderr(closed()).stdout(closed()).status().unwrap();
        assert!(
            [Some(0), Some(1), Some(2)].contains(&status.code()),
            "{arguments:?}: {status}"
        );
    }
}

#[test]
fn a_shell_that_asks_how_to_enable_is_told_the_line_alone() {
    let asked = |stdout: Stdio| {
        let library = Scratch::new().unwrap();
        library.write("libpcap.so.0.8", "").unwrap();
        let directory = library.file("libpcap.so.0.8");
        Command::new(COMMAND)
            .arg("enable")
            .env("FANPCAP_LIB_DIR", directory.parent().unwrap())
            .stdout(stdout)
            .output()
            .unwrap()
    };
    let output = asked(Stdio::piped());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    assert!(output.stdout.starts_with(b"export LD_LIBRARY_PATH='"));
    // The command must not fail if its output has no reader, either.
    let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(reader);
    let output = asked(std::os::fd::OwnedFd::from(writer).into());
    assert!(output.status.success(), "{output:?}");
}
