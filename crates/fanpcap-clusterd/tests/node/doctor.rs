//! What a node reports to `fanpcap doctor`.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::mirror::MONITOR;
use fanpcap_testkit::{netns, veth};
use serde_json::{Value, json};

use crate::stage::Stage;

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_selection_without_its_agent_and_an_address_are_found_and_mended() {
    netns::within_new(|| {
        let mut stage = Stage::bare(1)?;
        stage.settings("device = mon\n")?;
        ensure!(found(&stage)?.is_empty(), "nothing runs");
        ensure!(asked(&stage)?["node"].is_null(), "no agent runs");
        stage.start(0)?;
        stage.await_output(0, "loaded topology")?;
        ensure!(found(&stage)?.is_empty(), "the agent runs");
        let node = json!({
            "device": "mon",
            "cluster": "test",
            "select": "packet",
            "gets": "packets by a hash of each packet: a connection's packets go to several nodes",
        });
        let said = asked(&stage)?;
        ensure!(said["node"] == node, "{said}");
        stage.kill(0)?;
        ensure!(asked(&stage)?["node"].is_null(), "its agent is gone");
        let all = found(&stage)?;
        ensure!(
            all.len() == 1 && all[0].0 == "selection-without-agent",
            "{all:?}"
        );
        let words: Vec<&str> = all[0].1.split(' ').collect();
        ensure!(words.ends_with(&["node", MONITOR, "--detach"]), "{words:?}");
        stage.run(0, &[MONITOR, "--detach"])?;
        let addressed = || veth::ip("address add 198.51.100.1/24 dev mon");
        stage.mirror.on_node(0, addressed)?;
        let all = found(&stage)?;
        ensure!(all.len() == 1 && all[0].0 == "monitored-device", "{all:?}");
        let fix = all[0].1.strip_prefix("ip ").context("a command")?;
        stage.mirror.on_node(0, || veth::ip(fix))?;
        ensure!(found(&stage)?.is_empty(), "its command mends it");
        stage.mirror.on_node(0, || veth::ip("link set mon down"))?;
        let all = found(&stage)?;
        ensure!(all.len() == 1 && all[0].0 == "silent-device", "{all:?}");
        let fix = all[0].1.strip_prefix("ip ").context("a command")?;
        stage.mirror.on_node(0, || {
            veth::ip(fix)?;
            veth::await_up(MONITOR)
        })?;
        ensure!(found(&stage)?.is_empty(), "its command mends it");
        Ok(())
    })
    .unwrap();
}

/// The node's reply to doctor.
fn asked(stage: &Stage) -> Result<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fanpcap-cluster"));
    command
        .args(["cluster", "check", "--doctor"])
        .arg(stage.scratch.file("cluster.conf"));
    let done = stage.mirror.on_node(0, || Ok(command.output()?))?;
    serde_json::from_slice(&done.stdout)
        .with_context(|| String::from_utf8_lossy(&done.stderr).into_owned())
}

/// The findings at the node: their names, and the commands that repair them. The finding about the
/// machine's clock is left out.
fn found(stage: &Stage) -> Result<Vec<(String, String)>> {
    let said = asked(stage)?;
    let all = said["findings"].as_array().context("findings")?.iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = all.map(|it| (text(&it["name"]), text(&it["fix"])));
    Ok(all.filter(|(name, _)| name != "clock-adrift").collect())
}
