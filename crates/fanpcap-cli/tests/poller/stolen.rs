//! The engine afxdp: packets that the host does not get, and the device's settings before and
//! after.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::cpus;
use fanpcap_testkit::veth::{Veth, has_xdp};

use crate::running::{Member, Poller, Sent, within};
use crate::{FAR, NEAR};

/// Whether the device takes VLAN tags out of frames.
fn takes_tags() -> Result<bool> {
    let features = Command::new("ethtool").args(["-k", FAR]).output()?;
    let features = String::from_utf8(features.stdout)?;
    Ok(features.lines().any(|line| line == "rx-vlan-offload: on"))
}

fn set_takes_tags(is_on: bool) -> Result<()> {
    let word = if is_on { "on" } else { "off" };
    let status = Command::new("ethtool")
        .args(["-K", FAR, "rxvlan", word])
        .status()?;
    ensure!(status.success(), "rxvlan {word}");
    Ok(())
}

fn restore() -> Result<()> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fanpcap"));
    let output = command.args(["tune", FAR, "--restore"]).output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(())
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn members_get_each_packet_of_all_queues_once() {
    within(|| {
        Veth::new(NEAR, FAR, 2)?;
        let cpu = *cpus()?.first().context("a CPU")?;
        let poller = Poller::start(&format!("afxdp:{FAR} --cpus {cpu}"), 1)?;
        let said = poller.said()?;
        let on = format!("2 queues, CPUs {cpu}, {cpu} (as asked; 1 for 2: they share)");
        let parts = ["the kernel copies", &on, "the host gets none"];
        ensure!(parts.iter().all(|part| said.contains(part)), "{said}");
        let mut members = vec![Member::enter("afxdp")?, Member::enter("afxdp")?];
        let mut sent = Sent::new()?;
        sent.share(&mut members)?;
        let summary = poller.end()?;
        ensure!(summary.len() == 6, "{summary:?}");
        ensure!(
            summary[4].contains(&format!(" {} ", sent.count)),
            "{summary:?}"
        );
        ensure!(!has_xdp(FAR)?);
        Ok(())
    })
    .unwrap();
}

/// A device's setting comes back when the poller ends, and after a crash by the next poller's end
/// or by `fanpcap tune`.
#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn the_device_leaves_tags_in_frames_as_long_as_the_poller_lives() {
    within(|| {
        Veth::new(NEAR, FAR, 1)?;
        set_takes_tags(true)?;
        let start = || Poller::start(&format!("afxdp:{FAR}"), 1);
        let poller = start()?;
        ensure!(!takes_tags()?);
        poller.end()?;
        ensure!(takes_tags()?);
        start()?.kill()?;
        ensure!(!takes_tags()?, "it was killed");
        start()?.end()?;
        ensure!(takes_tags()?, "the next one has ended");
        start()?.kill()?;
        restore()?;
        ensure!(takes_tags()?, "fanpcap tune --restore");
        set_takes_tags(false)?;
        start()?.end()?;
        ensure!(!takes_tags()?, "it was off before");
        Ok(())
    })
    .unwrap();
}

/// The capabilities in fanpcap-poller@.service, and CAP_IPC_LOCK in the place of its limit of
/// locked memory.
#[test]
#[ignore = "needs root: eBPF, a network namespace, setpriv"]
fn the_capabilities_of_the_unit_are_enough() {
    within(|| {
        Veth::new(NEAR, FAR, 1)?;
        set_takes_tags(true)?;
        for engine in ["packet", "afxdp"] {
            let mut command = Command::new("setpriv");
            command
                .arg("--no-new-privs")
                .arg("--bounding-set=-all,+net_raw,+net_admin,+bpf,+ipc_lock")
                .args(["--", env!("CARGO_BIN_EXE_fanpcap"), "poller"])
                .arg(format!("{engine}:{FAR}"));
            let poller = Poller::start_by(command, 1)?;
            let mut members = vec![Member::enter(engine)?];
            Sent::new()?.share(&mut members)?;
            poller.end()?;
        }
        ensure!(takes_tags()?);
        Ok(())
    })
    .unwrap();
}
