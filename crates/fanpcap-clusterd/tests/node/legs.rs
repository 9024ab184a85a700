//! A node with two devices, which are the legs of a tap: the node has one selection and one
//! account.

use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use fanpcap_linux::bpf::{Attached, Hook, open_pinned};
use fanpcap_linux::interface;
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::mirror::{MONITOR, MONITOR2, WIRE, WIRE2, port2};
use fanpcap_testkit::{Injector, Veth, netns, veth};

use crate::refusals::{left_of, netns_of, refused};
use crate::stage::Stage;

/// Sends the frames with these numbers, on the two legs in turn.
fn send(numbers: Range<u64>) -> Result<()> {
    let frames = Stage::frames(numbers)?;
    for (leg, wire) in [WIRE, WIRE2].into_iter().enumerate() {
        let of_leg: Vec<_> = frames.iter().skip(leg).step_by(2).collect();
        Injector::open(wire)?.send_all(&of_leg)?;
    }
    Ok(())
}

/// Detaches the selection from a device, as another program might do.
fn take_off(stage: &Stage, device: &str) -> Result<()> {
    let netns = netns_of(stage, 0)?;
    let index = stage
        .mirror
        .on_node(0, || interface::index(device).context("no such device"))?;
    let bases = ["/run", "/dev/shm"].map(Path::new).into_iter();
    let mut found = bases.filter_map(|base| {
        let pins = base.join("fanpcap-state/cluster/bpf");
        open_pinned(&pins.join(format!("{netns}-{index}")).join("link")).ok()
    });
    let link = found.next().context("the pinned link")?;
    Attached::open(link, Hook::Driver)?.detach()?;
    Ok(())
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn the_legs_of_a_tap_have_one_selection_and_one_account() {
    netns::within_new(|| {
        let mut stage = Stage::bare(2)?;
        stage.mirror.add_leg()?;
        stage.settings("device = mon, mon2\n")?;
        refused(&stage, "mon,mon", "device 'mon' is named twice")?;
        for node in 0..2 {
            stage.start_with(node, &[])?;
            stage.await_output(node, "on mon, mon2")?;
            stage.await_output(node, "loaded topology 1")?;
        }
        send(0..200)?;
        stage.kill(0)?;
        send(200..400)?;
        stage.start_with(0, &[])?;
        stage.await_output(
            0,
            "still selects by topology 1, which an earlier agent has loaded",
        )?;
        stage.await_output(0, "switched to topology 1")?;
        send(400..600)?;
        let mut captured = 0;
        for node in 0..2 {
            stage.await_metric(node, "seen_packets_total", 600)?;
            let own = stage.metric(node, "captured_packets_total")?;
            ensure!((100..500).contains(&own), "{own} of 600 captured");
            captured += own;
        }
        ensure!(captured == 600, "{captured} captured");
        one_leg(stage)
    })
    .unwrap();
}

/// A leg without a link is reported. If the selection of one leg is detached, the agent ends.
/// `--detach` then detaches the selection from both legs.
fn one_leg(mut stage: Stage) -> Result<()> {
    let port = port2(0);
    veth::ip(&format!("link set {port} down"))?;
    stage.await_output(0, "mon2 has no link: this node misses its packets")?;
    stage.await_metric(0, "silent_devices", 1)?;
    veth::ip(&format!("link set {port} up"))?;
    stage.await_output(0, "mon2 has its link again")?;
    take_off(&stage, MONITOR2)?;
    stage.await_end(0)?;
    stage.await_output(0, "the device mon2 is gone, or its selection was detached")?;
    // With one device instead of two, the agent loads another selection with new counters.
    stage.start_with(0, &["-i", MONITOR])?;
    await_for("the selection of one device", LIMIT, || {
        let loaded = stage.output(0).matches("loaded topology 1 ").count();
        Ok((loaded == 2).then_some(()))
    })?;
    send(600..800)?;
    await_for("the packets of one leg", LIMIT, || {
        Ok((stage.metric(0, "seen_packets_total")? == 100).then_some(()))
    })?;
    for node in 0..2 {
        stage.kill(node)?;
        let done = stage.run(node, &["--detach"])?;
        let said = String::from_utf8_lossy(&done.stderr);
        let had = ["had no selection", "has no selection any more"][node];
        ensure!(said.contains(&format!("mon2 {had}")), "{said}");
        ensure!(said.contains("mon has no selection any more"), "{said}");
    }
    Ok(())
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_device_that_is_gone_does_not_keep_the_selection_on_the_others() {
    netns::within_new(|| {
        let mut stage = Stage::bare(1)?;
        stage.mirror.add_leg()?;
        stage.settings("device = mon2, mon\n")?;
        stage.start_with(0, &[])?;
        stage.await_output(0, "loaded topology 1")?;
        stage.kill(0)?;
        stage.mirror.on_node(0, || veth::ip("link delete mon2"))?;
        let done = stage.run(0, &["--detach"])?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(!done.status.success(), "{said}");
        for word in ["no device 'mon2'", "mon has no selection any more"] {
            ensure!(said.contains(word), "{said}");
        }
        // `--detach` also works without the settings.
        fs::remove_file(stage.scratch.file("cluster.conf"))?;
        let done = stage.run(0, &["-i", MONITOR, "--detach"])?;
        ensure!(done.status.success(), "{done:?}");
        Ok(())
    })
    .unwrap();
}

/// Makes a device of a node, in place of a device that was removed. Returns its index.
fn make_leg(stage: &Stage) -> Result<u32> {
    stage.mirror.on_node(0, || {
        Veth::new("other", "leg", 1)?;
        interface::index("leg").context("no such device")
    })
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn nothing_is_left_of_a_leg_that_came_back_with_another_index() {
    netns::within_new(|| {
        let mut stage = Stage::bare(1)?;
        stage.settings("device = mon, leg\n")?;
        let netns = netns_of(&stage, 0)?;
        let first = make_leg(&stage)?;
        stage.start_with(0, &[])?;
        stage.await_output(0, "loaded topology 1 ")?;
        stage.kill(0)?;
        ensure!(!left_of(&format!("{netns}/{first}."))?.is_empty());
        stage.mirror.on_node(0, || veth::ip("link delete leg"))?;
        ensure!(make_leg(&stage)? != first, "another index");
        stage.start_with(0, &[])?;
        await_for("the second selection", LIMIT, || {
            let loaded = stage.output(0).matches("loaded topology 1 ").count();
            Ok((loaded == 2).then_some(()))
        })?;
        for parts in [format!("{netns}/{first}."), format!("bpf/{netns}-{first}")] {
            let left = left_of(&parts)?;
            ensure!(left.is_empty(), "{left:?}");
        }
        stage.kill(0)?;
        let done = stage.run(0, &["--detach"])?;
        ensure!(done.status.success(), "{done:?}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_driver_without_xdp_on_one_of_two_devices_is_no_hindrance() {
    netns::within_new(|| {
        let mut stage = Stage::bare(1)?;
        stage
            .mirror
            .on_node(0, || veth::ip("link add none up type bridge"))?;
        stage.settings("device = mon, none\n")?;
        for agents in 1..=2 {
            stage.start_with(0, &[])?;
            stage.await_output(0, "loaded topology 1 ")?;
            stage.send(0..200)?;
            stage.await_metric(0, "captured_packets_total", 200 * agents)?;
            stage.kill(0)?;
        }
        stage.await_output(0, "topology 1, which an earlier agent")?;
        let done = stage.run(0, &["--detach"])?;
        ensure!(done.status.success(), "{done:?}");
        Ok(())
    })
    .unwrap();
}
