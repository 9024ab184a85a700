//! Nodes with the embedded engine, and a coordinator that leads them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use anyhow::Result;
use fanpcap_testkit::netns;

use crate::stage::Stage;

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn nodes_that_join_get_their_share_without_a_loss() {
    netns::within_new(|| {
        let mut stage = Stage::bare(2)?;
        settings(&mut stage, "")?;
        let coordinator = coordinator(&stage)?;
        for node in 0..2 {
            stage.start(node)?;
        }
        for node in 0..2 {
            stage.await_output(node, ": 2048 buckets")?;
            stage.read(node)?;
        }
        stage.send(0..3000)?;
        // Without the coordinator, nodes capture as before, also after an agent is started again.
        drop(coordinator);
        stage.kill(1)?;
        stage.send(3000..5000)?;
        stage.start(1)?;
        stage.await_output(1, "which an earlier agent has loaded")?;
        stage.send(5000..6000)?;
        stage.assert_once(0..6000)?;
        Ok(())
    })
    .unwrap();
}

/// Gives the nodes the settings of a cluster with a coordinator, and the settings `more`.
pub(crate) fn settings(stage: &mut Stage, more: &str) -> Result<()> {
    let key = stage
        .scratch
        .write("key", "0123456789abcdef0123456789abcdef")?;
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
    // The traffic has few flows, so a selection by flow would give the nodes unequal shares.
    let select = match more.contains("select") {
        true => "",
        false => "select = packet\n",
    };
    stage.replace_settings(&format!(
        "cluster = test\nkey_file = {}\ncoordinators = 192.0.2.254:7700\nhold_down = 0s\n\
         heartbeat = 200ms\noffline = 4s\n{select}{more}",
        key.display()
    ))
}

/// A coordinator, which is killed when this value is dropped.
pub(crate) struct Coordinator(Child);

impl Drop for Coordinator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a coordinator, whose messages go to the file `coordinator`.
pub(crate) fn coordinator(stage: &Stage) -> Result<Coordinator> {
    let log = fs::File::create(stage.scratch.file("coordinator"))?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_fanpcap-cluster"));
    command
        .args(["coordinator", "--config"])
        .arg(stage.scratch.file("cluster.conf"));
    command.env("STATE_DIRECTORY", stage.scratch.file(""));
    command.stdin(Stdio::null()).stderr(log);
    Ok(Coordinator(command.spawn()?))
}
