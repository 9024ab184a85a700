//! Devices that `fanpcap node` refuses.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use fanpcap_bpf::{Instruction, ProgramKind};
use fanpcap_linux::bpf::{Hook, LoadedProgram};
use fanpcap_linux::interface;
use fanpcap_testkit::mirror::{CONTROL, MONITOR};
use fanpcap_testkit::{Veth, netns, veth};

use crate::stage::Stage;

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_device_that_the_machine_needs_is_refused() {
    netns::within_new(|| {
        let stage = Stage::bare(1)?;
        refused(&stage, CONTROL, "ctl has an IP address")?;
        stage
            .mirror
            .on_node(0, || veth::ip("route add default dev ctl"))?;
        refused(
            &stage,
            CONTROL,
            "ctl carries the default route; --force allows this device",
        )?;
        refused(
            &stage,
            "absent",
            "no device 'absent' in this network namespace",
        )?;
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn anothers_xdp_program_is_left_alone() {
    netns::within_new(|| {
        let stage = Stage::bare(1)?;
        let code = [Instruction::set(0, 2), Instruction::exit()];
        let other = LoadedProgram::load(ProgramKind::Xdp, "other_tool", &code)?;
        let link = stage.mirror.on_node(0, || {
            let index = interface::index(MONITOR).unwrap_or(0);
            Ok(other.attach(index, Hook::Driver)?)
        })?;
        refused(&stage, MONITOR, "mon has another XDP program, other_tool")?;
        let netns = netns_of(&stage, 0)?;
        for parts in [format!("{netns}"), format!("bpf/{netns}-")] {
            let left = left_of(&parts)?;
            ensure!(
                left.is_empty(),
                "left by an agent that was refused: {left:?}"
            );
        }
        drop(link);
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, a BPF file system"]
fn agents_that_come_and_go_at_once_do_not_take_each_others_places() {
    netns::within_new(|| {
        let stage = Stage::bare(4)?;
        // Each command makes its directory, mounts the file system, and then removes both.
        for _ in 0..8 {
            let mut running = Vec::new();
            for node in 0..4 {
                let mut command = stage.agent(node, &["-i", MONITOR, "--detach"]);
                command.stderr(Stdio::piped());
                let child = stage.mirror.on_node(node, || Ok(command.spawn()?))?;
                running.push(child);
            }
            for child in running {
                let done = child.wait_with_output()?;
                let said = String::from_utf8_lossy(&done.stderr).into_owned();
                ensure!(done.status.success(), "{said}");
                ensure!(said.contains("mon had no selection"), "{said}");
            }
        }
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_selection_that_the_device_refuses_is_told_once_and_tried_again() {
    netns::within_new(|| {
        let mut stage = Stage::bare(1)?;
        // veth refuses XDP on a device that has fewer receive queues than its peer has send queues.
        stage.mirror.on_node(0, || {
            Veth::new("peer", "narrow", 2)?;
            veth::set_queues("narrow", "rx", 1)
        })?;
        stage.start_with(0, &["-i", "narrow"])?;
        stage.await_output(0, "attaching the selection to narrow")?;
        stage.await_output(0, "topology 1 is not loaded; trying again")?;
        // In this time the agent tries to load the topology three times, without a new message.
        thread::sleep(Duration::from_millis(3500));
        let lines = stage.output(0).matches("narrow").count();
        ensure!(lines == 2, "{}", stage.output(0));
        stage
            .mirror
            .on_node(0, || veth::set_queues("peer", "tx", 1))?;
        stage.await_output(0, "loaded topology 1 ")?;
        stage.kill(0)?;
        let done = stage.run(0, &["-i", "narrow", "--detach"])?;
        ensure!(done.status.success(), "{done:?}");
        Ok(())
    })
    .unwrap();
}

/// The inode number of a node's network namespace.
pub(crate) fn netns_of(stage: &Stage, node: usize) -> Result<u64> {
    let own = || Ok(fs::metadata("/proc/thread-self/ns/net")?.ino());
    stage.mirror.on_node(node, own)
}

/// Files that agents have left. Their paths, relative to the agents' directory, begin with `begin`.
pub(crate) fn left_of(begin: &str) -> Result<Vec<PathBuf>> {
    let mut left = Vec::new();
    for base in ["/run", "/dev/shm"] {
        let path = Path::new(base).join("fanpcap-state/cluster").join(begin);
        let (directory, name) = (path.parent(), path.file_name());
        let (Some(directory), Some(name)) = (directory, name.and_then(OsStr::to_str)) else {
            continue;
        };
        let Ok(entries) = fs::read_dir(directory) else {
            continue;
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(name) {
                left.push(entry.path());
            }
        }
    }
    Ok(left)
}

pub(crate) fn refused(stage: &Stage, device: &str, why: &str) -> Result<()> {
    let done = stage.run(0, &["-i", device])?;
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    ensure!(!done.status.success() && said.contains(why), "{said}");
    Ok(())
}
