//! Members that do not read, share a CPU, or do not belong to their group.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_linux::interface;
use fanpcap_linux::packet::{self, Address, PacketFanout};
use fanpcap_testkit::library::library_dir;
use fanpcap_testkit::{Member, Program, Scratch, cpus, member, needs};

use crate::asked::{Shell, within};

fn tcpdump(scratch: &Scratch, device: &str, mode: &str) -> Result<Member> {
    let file = scratch.new_file("pcap");
    Program::tcpdump(device, file)?
        .group(7, mode)
        .start(scratch)
}

fn two(scratch: &Scratch) -> Result<[Member; 2]> {
    let member = || tcpdump(scratch, "fdr1", "flow");
    Ok([member()?, member()?])
}

/// Prints why the test can't run on this machine, so that the test counts as skipped.
#[allow(clippy::print_stdout, reason = "the tiers read it in a test's output")]
fn skip(reason: &str) {
    println!("SKIP: {reason}");
}

/// The first CPU. If there is only one CPU, prints a message and returns `None`.
fn first_of_cpus() -> Result<Option<usize>> {
    let all = cpus()?;
    if all.len() < 2 {
        skip("one CPU");
    }
    Ok(all.first().copied().filter(|_| all.len() > 1))
}

/// A packet socket of this process in group 7. Our library does not read it.
fn stranger(device: &str) -> Result<OwnedFd> {
    let socket = packet::open()?;
    let ifindex = interface::index(device).context("the device")?;
    packet::bind(
        socket.as_fd(),
        Address {
            ifindex,
            protocol: 3,
        },
    )?;
    let group = PacketFanout {
        id: 7,
        mode: 0,
        flags: 0,
    };
    packet::join(socket.as_fd(), group).map_err(|_| anyhow::anyhow!("joining"))?;
    Ok(socket)
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_stopped_member_is_found_and_goes_on() -> Result<()> {
    within(|scratch| {
        let members = [
            tcpdump(scratch, "fdr1", "hash")?,
            tcpdump(scratch, "fdr1", "hash")?,
        ];
        let shell = Shell::new("fdr1")?;
        assert!(shell.find("", "member-stopped")?.is_none());
        members[0].signal("STOP")?;
        let found = shell.mend("member-stopped")?;
        assert_eq!(
            (found.effect.as_str(), found.place.as_str()),
            ("loses", "fdr1 group 7")
        );
        assert_eq!(found.fix, format!("kill -CONT {}", members[0].pid()));
        Ok(())
    })
}

#[test]
#[ignore = "needs root: packet sockets in a namespace; 11 seconds"]
fn a_member_that_does_not_read_is_found_and_ended() -> Result<()> {
    within(|scratch| {
        let _reads = tcpdump(scratch, "fdr1", "hash")?;
        // sleep(1) reads nothing from the pipe. So tcpdump waits for room in the pipe and reads no
        // more packets.
        let hangs = Program::new("sh", "listening on")?
            .args(["-c", "tcpdump -n -i fdr1 -U -w - | sleep 25"])
            .group(7, "hash")
            .start(scratch)?;
        member::wait_for_members(7, 2)?;
        Command::new(env!("CARGO_BIN_EXE_fanpcap"))
            .args("gen -i fdr0 --count 4000 --rate 4k --len 1000 --flows 64".split(' '))
            .output()?;
        thread::sleep(Duration::from_secs(11));
        let shell = Shell::new("fdr1")?;
        let found = shell.mend("member-silent")?;
        assert_eq!(found.effect, "loses");
        drop(hangs);
        Ok(())
    })
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn members_on_one_cpu_are_found_and_parted() -> Result<()> {
    within(|scratch| {
        let Some(first) = first_of_cpus()? else {
            return Ok(());
        };
        let members = two(scratch)?;
        for member in &members {
            let bound = Command::new("taskset")
                .args(["-acp", &first.to_string(), &member.pid().to_string()])
                .output()?;
            ensure!(bound.status.success(), "{bound:?}");
        }
        let found = Shell::new("fdr1")?.mend("one-cpu-for-members")?;
        assert_eq!(found.effect, "costs");
        Ok(())
    })
}

/// A cpuset restricts the members to one CPU, and taskset(1) can't give a process a CPU that is not
/// in its cpuset. So the finding's command must change the cpuset.
#[test]
#[ignore = "needs root: packet sockets in a namespace, a cpuset"]
fn members_in_a_narrow_cpuset_are_found_and_given_more_cpus() -> Result<()> {
    within(|scratch| {
        let Some(first) = first_of_cpus()? else {
            return Ok(());
        };
        let members = two(scratch)?;
        let mut shell = Shell::new("fdr1")?;
        shell.before = "mount -t cgroup -o cpuset none /sys/fs/cgroup 2>/dev/null || \
                        mount -t cgroup2 none /sys/fs/cgroup || exit 99"
            .to_owned();
        let cpuset = format!("/sys/fs/cgroup/fdr-{}", std::process::id());
        let pids = members.each_ref().map(|it| it.pid().to_string()).join(" ");
        let make = format!(
            "echo +cpuset > /sys/fs/cgroup/cgroup.subtree_control 2>/dev/null
             mkdir {cpuset} && echo {first} > {cpuset}/cpuset.cpus && echo 0 > {cpuset}/cpuset.mems || exit 7
             for pid in {pids}; do echo $pid > {cpuset}/cgroup.procs || exit 7; done"
        );
        let (status, said) = shell.run(&make)?;
        let mended = match status {
            0 => shell.mend("narrow-cpuset").map(Some),
            // The test can't create cpusets, for example because it runs in a container.
            _ => Ok(None),
        };
        for member in members {
            member.stop()?;
        }
        shell.run(&format!("rmdir {cpuset}"))?;
        match mended? {
            Some(found) => ensure!(found.effect == "costs", "{found:?}"),
            None => skip(&format!("no cpuset can be made here: {said}")),
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_stranger_in_a_group_is_found() -> Result<()> {
    within(|scratch| {
        let _member = tcpdump(scratch, "fdr1", "hash")?;
        let shell = Shell::new("fdr1")?;
        assert!(shell.find("", "strangers-in-group")?.is_none());
        let socket = stranger("fdr1")?;
        let found = shell.found("strangers-in-group")?;
        assert_eq!(
            (found.effect.as_str(), found.place.as_str()),
            ("loses", "fdr1 group 7")
        );
        assert!(found.fix.starts_with("export PCAP_GROUP=8 "), "{found:?}");
        drop(socket);
        assert!(shell.find("", "strangers-in-group")?.is_none());
        Ok(())
    })
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_group_that_strangers_have_is_found_and_another_taken() -> Result<()> {
    within(|_| {
        let _socket = stranger("fdr1")?;
        let shell = Shell::new("fdr1")?.set("PCAP_GROUP", "7");
        let found = shell.mend("group-taken")?;
        assert_eq!(found.fix, "export PCAP_GROUP_fdr1=1");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn different_programs_in_a_group_are_found() -> Result<()> {
    within(|scratch| {
        let _member = tcpdump(scratch, "fdr1", "hash")?;
        let other = Program::new(env!("CARGO_BIN_EXE_fanpcap"), "capturing on")?
            .args(["capture", "-i", "fdr1", "--group", "7", "--fanout", "hash"])
            .start(scratch)?;
        let shell = Shell::new("fdr1")?;
        let found = shell.found("mixed-programs")?;
        assert_eq!(found.effect, "loses");
        other.stop()?;
        assert!(shell.find("", "mixed-programs")?.is_none());
        Ok(())
    })
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_capture_beside_the_group_is_found_and_ended() -> Result<()> {
    within(|scratch| {
        let nowhere = scratch.file("");
        let mut plain = Program::on(&nowhere, "tcpdump", "listening on")
            .args(["-n", "-i", "fdr1"])
            .start(scratch)?;
        let shell = Shell::new("fdr1")?.set("PCAP_GROUP", "7");
        let found = shell.mend("not-in-group")?;
        assert_eq!(found.effect, "distorts");
        plain.wait_until_says("packets captured")?;
        Ok(())
    })
}

/// While GRO is on, a kernel thread polls a veth. A member on the CPU of this thread gets less
/// time.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_member_where_the_kernel_polls_is_found_and_moved() -> Result<()> {
    within(|scratch| {
        let Some(first) = first_of_cpus()? else {
            return Ok(());
        };
        needs::kernel_threads()?;
        let member = tcpdump(scratch, "fdr1", "flow")?;
        let shell = Shell::new("fdr1")?;
        let bind = format!(
            "ethtool -K fdr1 gro on && echo 1 > /sys/class/net/fdr1/threaded && \
             for thread in $(pgrep napi/fdr1-); do taskset -pc {first} $thread; done && \
             taskset -acp {first} {}",
            member.pid()
        );
        let (status, said) = shell.run(&bind)?;
        ensure!(status == 0, "{said}");
        let found = shell.mend("polled-on-members-cpu")?;
        assert_eq!(found.effect, "costs");
        Ok(())
    })
}

/// An upgrade replaces the library's file by another one of the same name.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_member_with_a_replaced_library_is_found() -> Result<()> {
    within(|scratch| {
        let library = scratch.file("libpcap.so.0.8");
        let copy = || fs::copy(library_dir()?.join("libpcap.so.0.8"), &library).context("copying");
        copy()?;
        let file = scratch.new_file("pcap");
        let directory = library.parent().context("a directory")?.to_owned();
        let program = Program::tcpdump("fdr1", file)?.group(7, "flow");
        let member = program.set("LD_LIBRARY_PATH", &directory).start(scratch)?;
        member::wait_for_members(7, 1)?;
        let shell = Shell::new("fdr1")?;
        ensure!(shell.find("", "old-library")?.is_none(), "not replaced yet");
        fs::remove_file(&library)?;
        copy()?;
        let found = shell.found("old-library")?;
        assert_eq!(found.place, "fdr1 group 7");
        assert_eq!(found.effect, "distorts");
        let shown = shell.run("fanpcap group fdr1 7")?.1;
        let is_member = |line: &&str| line.contains(&member.pid().to_string());
        let line = shown.lines().find(is_member).context("the member")?;
        ensure!(line.contains(" replaced  "), "{shown}");
        Ok(())
    })
}
