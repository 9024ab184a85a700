//! Copies that steal packets from the host. Once the host uses the device, the commands must report
//! that its packets are stolen.

use anyhow::{Result, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::veth::ip;
use fanpcap_testkit::{Scratch, member};
use serde_json::Value;

use crate::captures::on_wire;
use crate::{FAR, GROUP, Running, printed};

/// The reason in the report why the host may need the packets.
const WHY: &str = "it has an IP address";

/// Runs a tcpdump on the XDP engine that steals the device's packets. `steal` is `yes` or `force`.
fn tcpdump(scratch: &Scratch, steal: &str) -> Result<Running> {
    let lines = format!("driver@{FAR} = xdp\nsteal@{FAR} = {steal}\n");
    let config = scratch.write("pcap.conf", &lines)?;
    let config = format!("PCAP_CONFIG={}", config.display());
    let group = GROUP.to_string();
    let line = ["-n", "1", "--group", &group, "--cpus", "none", "--"];
    let command = ["tcpdump", "-n", "-Z", "root", "-i", FAR, "-w", "%i.pcap"];
    let running = Running::start_by(&["env", &config], &[&line[..], &command].concat(), None)?;
    running.wait_until_says("tcpdump: listening", 1)?;
    member::wait_for_members(GROUP, 1)?;
    ensure!(
        !running.said().contains("packet sockets"),
        "{}",
        running.said()
    );
    Ok(running)
}

/// What the commands report about packets that are stolen from the host: the values of `top` and
/// `group` as JSON, and whether `metrics` has the metric.
fn told() -> Result<(Value, Value, bool)> {
    let top: Value = serde_json::from_str(&printed(&["top", FAR, "--once", "--json"])?)?;
    let group = printed(&["group", FAR, &GROUP.to_string(), "--json"])?;
    let group: Value = serde_json::from_str(&group)?;
    let metrics = printed(&["metrics", FAR])?;
    let is_stolen =
        |line: &str| line.starts_with("fanpcap_device_stolen_from_host{") && line.ends_with("} 1");
    Ok((
        top["devices"][0]["stolen_from_host"].clone(),
        group["stolen_from_host"].clone(),
        metrics.lines().any(is_stolen),
    ))
}

#[test]
#[ignore = "needs root: eBPF, packet sockets in a namespace"]
fn a_device_that_the_host_begins_to_use_while_it_is_stolen_is_told_everywhere() {
    on_wire(|_| {
        let scratch = Scratch::new()?;
        let running = tcpdump(&scratch, "yes")?;
        ensure!(
            told()? == (Value::Null, Value::Null, false),
            "{:?}",
            told()?
        );
        let doctor = || printed(&["doctor", FAR]);
        ensure!(!doctor()?.contains("[stolen-from-host]"), "{}", doctor()?);

        ip(&format!("addr add 10.9.9.1/24 dev {FAR}"))?;
        let warning = format!("{FAR} is stolen from the host, which may need its packets: {WHY}\n");
        running.wait_until_says(&warning, 1)?;
        ensure!(told()? == (WHY.into(), WHY.into(), true), "{:?}", told()?);
        let found = format!(
            "loses     {FAR}: a capture steals its packets from the host, which may need them: {WHY}"
        );
        ensure!(doctor()?.contains(&found), "{}", doctor()?);
        let page = printed(&["group", FAR, &GROUP.to_string()])?;
        ensure!(page.contains("stolen from the host"), "{page}");
        let page = printed(&["top", FAR, "--once"])?;
        ensure!(page.contains("stolen from the host"), "{page}");

        ip(&format!("addr del 10.9.9.1/24 dev {FAR}"))?;
        await_for("top to say that it is over", LIMIT, || {
            Ok((told()? == (Value::Null, Value::Null, false)).then_some(()))
        })?;
        let ended = running.stop()?;
        ensure!(
            ended.said().matches(&warning).count() == 1,
            "{}",
            ended.said()
        );
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: eBPF, packet sockets in a namespace"]
fn a_device_that_is_stolen_by_force_is_not_told() {
    on_wire(|_| {
        ip(&format!("addr add 10.9.9.1/24 dev {FAR}"))?;
        let scratch = Scratch::new()?;
        let running = tcpdump(&scratch, "force")?;
        ensure!(
            told()? == (Value::Null, Value::Null, false),
            "{:?}",
            told()?
        );
        let ended = running.stop()?;
        ensure!(!ended.said().contains("stolen"), "{}", ended.said());
        Ok(())
    })
    .unwrap();
}
