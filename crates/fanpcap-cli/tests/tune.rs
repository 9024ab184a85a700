//! `fanpcap tune` on veth devices. The tests check what it changes, and that it restores all old
//! values.
#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use fanpcap_linux::process::child::{self, SIGKILL};
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_testkit::veth::ip;
use fanpcap_testkit::{Program, Scratch, Veth, await_for, needs, netns};

const COMMAND: &str = env!("CARGO_BIN_EXE_fanpcap");
const DEVICE: &str = "ftun1";

/// Runs a test with a veth pair of four queues in a new namespace. Checks that the test leaves no
/// change and no journal behind.
fn within(test: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    netns::within_new(|| {
        let number = fanpcap_linux::process::netns::inode()?.to_string();
        let journals = ["/run", "/dev/shm"]
            .map(|base| PathBuf::from(base).join("fanpcap-state/tune").join(&number));
        // Remove journals that an earlier namespace with the same inode number may have left.
        for journals in &journals {
            let _ = fs::remove_dir_all(journals);
        }
        Veth::new("ftun0", DEVICE, 4)?;
        let before = facts()?;
        let result = test();
        let restored = tune(&["--restore"]);
        for journals in journals {
            let is_left = journals.exists();
            let _ = fs::remove_dir_all(&journals);
            ensure!(
                result.is_err() || !is_left,
                "{} is left",
                journals.display()
            );
        }
        result?;
        said(&restored?, true)?;
        assert_eq!(facts()?, before);
        Ok(())
    })
}

fn tune(arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(COMMAND);
    Ok(command.arg("tune").args(arguments).output()?)
}

fn said(output: &Output, succeeds: bool) -> Result<String> {
    let said = [&output.stdout[..], &output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    ensure!(output.status.success() == succeeds, "{said}");
    Ok(said)
}

fn facts() -> Result<String> {
    said(&tune(&[DEVICE, "--facts"])?, true)
}

fn has(fact: &str) -> Result<bool> {
    Ok(facts()?.lines().any(|line| line.trim_end() == fact))
}

const BEFORE: &str = "value channels rx=4,tx=4,other=0,combined=0";
const AFTER: &str = "value channels rx=2,tx=4,other=0,combined=0";

fn ethtool(arguments: &str) -> Result<()> {
    let status = Command::new("ethtool")
        .args(arguments.split(' '))
        .status()?;
    ensure!(status.success(), "ethtool {arguments}");
    Ok(())
}

#[test]
#[ignore = "needs root: a network namespace"]
fn it_shows_and_changes_nothing_until_it_is_told_to() -> Result<()> {
    within(|| {
        let before = facts()?;
        let shown = said(&tune(&[DEVICE, "--queues", "2"])?, true)?;
        for expected in [
            "no interrupts to place",
            "channels: rx=4,tx=4,other=0,combined=0 -> rx=2 (",
            "rps.1: none -> ",
            "nothing is changed",
        ] {
            ensure!(shown.contains(expected), "{shown}");
        }
        assert_eq!(facts()?, before);
        let done = said(&tune(&[DEVICE, "--queues", "2", "--apply"])?, true)?;
        ensure!(
            !done.contains("REFUSED") && done.contains("fanpcap run --cpus"),
            "{done}"
        );
        ensure!(has(AFTER)? && !has("value rps.0")? && !has("value rps.1")?);
        let shown = said(&tune(&[DEVICE, "--queues", "2"])?, true)?;
        ensure!(shown.contains("nothing to change"), "{shown}");
        ensure!(shown.contains("until --restore"), "{shown}");
        let restored = said(&tune(&[DEVICE, "--restore"])?, true)?;
        ensure!(
            restored.contains("-> rx=4,tx=4,other=0,combined=0, as before"),
            "{restored}"
        );
        assert_eq!(facts()?, before);
        Ok(())
    })
}

/// Packet steering has no effect on members that get their packets from the XDP engine.
#[test]
#[ignore = "needs root: a network namespace"]
fn packets_of_members_on_xdp_are_not_steered() -> Result<()> {
    within(|| {
        let steered = |driver: &str| -> Result<(bool, bool)> {
            let mut command = Command::new(COMMAND);
            command.args(["tune", DEVICE]);
            command.envs([("PCAP_CONFIG", "/dev/null"), ("PCAP_DRIVER", driver)]);
            let shown = said(&command.output()?, true)?;
            let note = "note: the XDP engine takes the packets before packet steering";
            Ok((shown.contains("rps.0: none -> "), shown.contains(note)))
        };
        assert_eq!(steered("tpacket")?, (true, false));
        assert_eq!(steered("xdp")?, (false, true));
        // The members decide, not the settings.
        let scratch = Scratch::new()?;
        let start = |driver: &str| {
            let program = Program::tcpdump(DEVICE, scratch.new_file("pcap"))?;
            program
                .group(7, "flow")
                .set("PCAP_DRIVER", driver)
                .start(&scratch)
        };
        let on_xdp = start("xdp")?;
        assert_eq!(steered("tpacket")?, (false, true));
        on_xdp.stop()?;
        let on_packet_sockets = start("tpacket")?;
        assert_eq!(steered("xdp")?, (true, false));
        on_packet_sockets.stop()?;
        Ok(())
    })
}

/// One call places also the queues that it adds, and the plan of a later call keeps them.
#[test]
#[ignore = "needs root: a network namespace"]
fn added_queues_are_placed_at_once_and_stay() -> Result<()> {
    within(|| {
        ethtool("-L ftun1 rx 1")?;
        let done = said(&tune(&[DEVICE, "--queues", "2", "--apply"])?, true)?;
        ensure!(done.contains("as its other end sends by"), "{done}");
        ensure!(has(AFTER)? && !has("value rps.0")? && !has("value rps.1")?);
        let later = said(&tune(&[DEVICE])?, true)?;
        ensure!(later.contains("nothing to change"), "{later}");
        said(&tune(&[DEVICE, "--restore"])?, true)?;
        ensure!(has("value channels rx=1,tx=4,other=0,combined=0")?);
        ethtool("-L ftun1 rx 4")
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn polling_threads_are_placed_and_gone_afterwards() -> Result<()> {
    within(|| {
        needs::kernel_threads()?;
        let arguments = [DEVICE, "--threads", "--queues", "2", "--apply"];
        let done = said(&tune(&arguments)?, true)?;
        ensure!(done.matches(": done").count() >= 5, "{done}");
        ensure!(has("value threaded on")? && has("value feature.rx-gro on")?);
        // `napi.1` is the fact of a polling thread. It also exists on a machine with one CPU, where
        // the command can't move the thread.
        ensure!(facts()?.contains("value napi.1 "), "{done}");
        let again = said(&tune(&arguments)?, true)?;
        ensure!(again.contains("nothing to change"), "{again}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn what_somebody_else_has_changed_since_is_left_alone_and_told() -> Result<()> {
    within(|| {
        said(&tune(&[DEVICE, "--queues", "2", "--apply"])?, true)?;
        ethtool("-L ftun1 rx 3")?;
        let shown = said(&tune(&[DEVICE])?, true)?;
        ensure!(
            shown.contains("changed by somebody else since: channels is rx=3"),
            "{shown}"
        );
        let restored = said(&tune(&["--restore"])?, true)?;
        let expected =
            "channels: is rx=3,tx=4,other=0,combined=0 and not rx=2,tx=4,other=0,combined=0";
        ensure!(restored.contains(expected), "{restored}");
        ensure!(has("value channels rx=3,tx=4,other=0,combined=0")?);
        ethtool("-L ftun1 rx 4")
    })
}

/// Starts a process, and the command that keeps its changes while this process runs (`--while`).
fn while_it_runs() -> Result<(Child, Child)> {
    let watched = Command::new("sleep").arg("60").spawn()?;
    let pid = watched.id().to_string();
    let mut command = Command::new(COMMAND);
    command.args(["tune", DEVICE, "--queues", "2", "--apply", "--while", &pid]);
    let waits = command.stdout(Stdio::null()).spawn()?;
    await_for("the changes", LIMIT, || Ok(has(AFTER)?.then_some(())))?;
    await_for("its packet steering", LIMIT, || {
        Ok((!has("value rps.1")?).then_some(()))
    })?;
    Ok((watched, waits))
}

#[test]
#[ignore = "needs root: a network namespace"]
fn everything_comes_back_when_the_process_ends_or_the_command_is_told_to() -> Result<()> {
    within(|| {
        for ends_itself in [true, false] {
            let (mut watched, mut waits) = while_it_runs()?;
            match ends_itself {
                true => watched.kill()?,
                false => child::signal(waits.id(), 15)?,
            }
            ensure!(waits.wait()?.success(), "it failed");
            ensure!(has(BEFORE)? && has("value rps.0")?);
            let _ = watched.kill();
            watched.wait()?;
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn after_kill_9_the_next_one_puts_everything_back() -> Result<()> {
    within(|| {
        for next in ["--restore", "--apply"] {
            let (mut watched, mut waits) = while_it_runs()?;
            child::signal(waits.id(), SIGKILL)?;
            waits.wait()?;
            ensure!(has(AFTER)?);
            let shown = said(&tune(&[DEVICE])?, true)?;
            ensure!(shown.contains("by a process that is gone"), "{shown}");
            let done = said(&tune(&[DEVICE, next])?, true)?;
            ensure!(
                done.contains("-> rx=4,tx=4,other=0,combined=0, as before"),
                "{done}"
            );
            watched.kill()?;
            watched.wait()?;
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn the_device_of_the_default_route_is_refused_unless_forced() -> Result<()> {
    within(|| {
        ip("addr add 192.0.2.1/24 dev ftun1")?;
        ip("route add default via 192.0.2.2 dev ftun1")?;
        let before = facts()?;
        let refused = said(&tune(&[DEVICE, "--apply"])?, false)?;
        ensure!(refused.contains("carries the default route"), "{refused}");
        let shown = said(&tune(&[DEVICE, "--queues", "2"])?, true)?;
        ensure!(shown.contains("--apply needs --force"), "{shown}");
        assert_eq!(facts()?, before);
        said(
            &tune(&[DEVICE, "--queues", "2", "--apply", "--force"])?,
            true,
        )?;
        // The host sends through the device. So the command also assigns the transmit queues to
        // CPUs, and does not turn off the merging of packets.
        ensure!(has(AFTER)? && !has("value xps.0")? && !has("value xps.1")?);
        said(&tune(&["--restore"])?, true)?;
        ip("addr del 192.0.2.1/24 dev ftun1")
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn a_command_is_measured_before_and_after() -> Result<()> {
    within(|| {
        let arguments = [DEVICE, "--queues", "2", "--apply", "--for", "true"];
        let done = said(&tune(&arguments)?, true)?;
        let before = done.find("before: 0 packets").context("before")?;
        let after = done.find("after: 0 packets").context("after")?;
        ensure!(before < after && has(AFTER)?, "{done}");
        said(&tune(&["--restore"])?, true)?;
        // The command after `--for` fails when it is run the second time.
        let second = "mkdir \"${TMPDIR:-/tmp}/fanpcap-tune-$PPID\"";
        let arguments = [DEVICE, "--queues", "2", "--apply", "--for", second];
        let failed = tune(&arguments)?;
        for made in fs::read_dir(std::env::temp_dir())?.flatten() {
            let name = made.file_name();
            if name.to_string_lossy().starts_with("fanpcap-tune-") {
                fs::remove_dir(made.path())?;
            }
        }
        let failed = said(&failed, false)?;
        ensure!(failed.contains("--for: the command ended"), "{failed}");
        ensure!(has(BEFORE)?, "{failed}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn errors_say_what_is_wrong() -> Result<()> {
    within(|| {
        let unknown = said(&tune(&["nonesuch"])?, false)?;
        ensure!(unknown.contains("no device 'nonesuch'"), "{unknown}");
        let many = said(&tune(&[DEVICE, "--queues", "5", "--apply"])?, false)?;
        ensure!(
            many.contains("5 receive queues, but it can have 1 to 4"),
            "{many}"
        );
        let gone = said(&tune(&[DEVICE, "--apply", "--while", "4194304"])?, false)?;
        ensure!(gone.contains("process 4194304"), "{gone}");
        let no_table = said(&tune(&[DEVICE, "--adapt"])?, false)?;
        ensure!(no_table.contains("no such setting"), "{no_table}");
        let useless = said(&tune(&[DEVICE, "--rounds", "3"])?, false)?;
        ensure!(useless.contains("--adapt"), "{useless}");
        let nobody = [
            "--reuid",
            "65534",
            "--clear-groups",
            COMMAND,
            "tune",
            DEVICE,
        ];
        let shown = Command::new("setpriv").args(nobody).output()?;
        said(&shown, true)?;
        let applied = Command::new("setpriv")
            .args(nobody)
            .arg("--apply")
            .output()?;
        let refused = said(&applied, false)?;
        ensure!(
            refused.contains("nothing is changed without a journal"),
            "{refused}"
        );
        ensure!(has(BEFORE)?);
        Ok(())
    })
}
