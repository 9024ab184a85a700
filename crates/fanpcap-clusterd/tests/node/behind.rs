//! Applications whose XDP engine gets its packets from the node's selection.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::mirror::MONITOR;
use fanpcap_testkit::{Capture, Member, Program, capture, netns};

use crate::stage::{SHARE, Stage};

/// Which of the packets that a node selects are also given to the host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Host {
    All,
    Nothing,
}

/// A stage with agents, but without the tcpdumps of [`Stage::new`].
fn agents(count: usize) -> Result<Stage> {
    let mut stage = Stage::bare(count)?;
    for node in 0..count {
        stage.start(node)?;
        stage.await_output(node, "loaded topology")?;
    }
    Ok(stage)
}

/// Starts tcpdump with the XDP engine on a node. tcpdump writes into a file of its own.
fn tcpdump(stage: &Stage, node: usize, host: Host) -> Result<Member> {
    let steal = match host {
        Host::All => "no",
        Host::Nothing => "yes",
    };
    let text = format!("driver@{MONITOR} = xdp\nsteal@{MONITOR} = {steal}\n");
    let config = stage.scratch.write(&format!("steal-{steal}.conf"), &text)?;
    let file = stage.scratch.new_file("engine.pcap");
    let program = Program::tcpdump(MONITOR, file)?.set("PCAP_CONFIG", config);
    let member = stage
        .mirror
        .on_node(node, || program.start(&stage.scratch))?;
    let said = member.said()?;
    ensure!(!said.contains("packet sockets"), "{said}");
    Ok(member)
}

/// Waits until the members together have `expected` packets, and then a while for further packets.
/// Returns how many packets each member has.
fn rest(members: &[&Member], expected: usize) -> Result<Vec<usize>> {
    let counts = || members.iter().map(|it| it.captured()).collect::<Vec<_>>();
    let wait = await_for("the last frames", LIMIT, || {
        Ok((counts().iter().sum::<usize>() >= expected).then_some(()))
    });
    wait.with_context(|| format!("{:?} of {expected}", counts()))?;
    thread::sleep(Duration::from_millis(300));
    Ok(counts())
}

fn ensure_once(members: &[&Member], sent: usize) -> Result<Vec<usize>> {
    let counts = rest(members, sent)?;
    let captures: Vec<Capture> = members.iter().map(|it| it.capture_so_far()).collect();
    let found = capture::sequences(&captures);
    let doubled = found.values().filter(|count| **count > 1).count();
    ensure!(
        (found.len(), doubled) == (sent, 0),
        "{} of {sent} found, {doubled} doubled: {counts:?}",
        found.len()
    );
    Ok(counts)
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn each_nodes_engine_has_its_share_and_the_host_what_it_is_left() {
    netns::within_new(|| {
        let mut stage = agents(3)?;
        for node in 0..3 {
            stage.read(node)?;
        }
        let hosts = [Host::Nothing, Host::All, Host::Nothing];
        let mut members = Vec::new();
        for (node, host) in hosts.into_iter().enumerate() {
            members.push(tcpdump(&stage, node, host)?);
        }
        stage.send(0..6000)?;
        let each = ensure_once(&members.iter().collect::<Vec<_>>(), 6000)?;
        // The engine on the second node also passes its application's packets on to the host's
        // packet sockets.
        let (_, of_hosts) = stage.captured()?;
        ensure!(of_hosts == [0, each[1], 0], "{of_hosts:?} of {each:?}");
        for (node, (member, count)) in members.into_iter().zip(&each).enumerate() {
            stage.await_metric(node, "seen_packets_total", 6000)?;
            ensure!(SHARE.contains(count), "{each:?}");
            let counts = ["seen", "captured", "elsewhere"]
                .map(|what| stage.metric(node, &format!("{what}_packets_total")));
            let [seen, captured, elsewhere] = counts;
            let counts = (seen?, captured?, elsewhere?);
            let own = *count as u64;
            ensure!(counts == (6000, own, 6000 - own), "{node}: {counts:?}");
            let ended = member.stop()?;
            let told = ["captured", "received by filter", "dropped by kernel"]
                .map(|what| ended.count(&format!("packets {what}")));
            let [own, received, dropped] = told;
            ensure!(
                (own?, received?, dropped?) == (*count, *count, 0),
                "{node}: {}",
                ended.said
            );
        }
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn an_engine_that_is_killed_leaves_the_packets_to_the_host_and_the_next_engine() {
    netns::within_new(|| {
        let mut stage = agents(1)?;
        stage.read(0)?;
        let first = tcpdump(&stage, 0, Host::Nothing)?;
        stage.send(0..200)?;
        ensure!(ensure_once(&[&first], 200)? == [200]);
        first.signal("KILL")?;
        first.wait()?;
        // After the engine was killed, the kernel needs a moment to remove its BPF program from the
        // map.
        thread::sleep(Duration::from_millis(500));
        stage.send(200..500)?;
        let (found, each) = stage.captured()?;
        ensure!(each == [300] && !found.contains_key(&199), "{each:?}");
        for round in 0..5_u64 {
            let next = tcpdump(&stage, 0, Host::Nothing)?;
            let begin = 500 + 100 * round;
            stage.send(begin..begin + 100)?;
            ensure!(rest(&[&next], 100)? == [100]);
            next.signal("KILL")?;
            next.wait()?;
        }
        ensure!(stage.captured()?.1 == [300]);
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn the_agent_may_be_killed_and_replace_its_program_before_an_engine() {
    netns::within_new(|| {
        let mut stage = agents(2)?;
        let members = [
            tcpdump(&stage, 0, Host::Nothing)?,
            tcpdump(&stage, 1, Host::All)?,
        ];
        stage.send(0..500)?;
        stage.kill(1)?;
        stage.send(500..1000)?;
        stage.start(1)?;
        stage.await_output(1, "which an earlier agent has loaded")?;
        stage.send(1000..1500)?;
        // A second application on the device finds the first application's engine.
        let second = tcpdump(&stage, 1, Host::All)?;
        stage.send(1500..2000)?;
        let both = [&members[0], &members[1]];
        let each = ensure_once(&both, 2000)?;
        let later = rest(&[&second], 1)?[0];
        ensure!(later > 0 && later < each[1], "{later} of {each:?}");
        // The new settings select by flow instead of by packet, so the agents must load another BPF
        // program.
        for node in 0..2 {
            stage.kill(node)?;
        }
        stage.replace_settings(
            "cluster = test\nengine = fixed\nnodes = a1, a2\ninitial = 78\nselect = flow\n",
        )?;
        for node in 0..2 {
            let before = stage.output(node).len();
            stage.start(node)?;
            await_for("another BPF program", LIMIT, || {
                let said = stage.output(node);
                Ok(said[before..].contains("loaded topology").then_some(()))
            })?;
        }
        stage.send(2000..3000)?;
        ensure_once(&both, 3000)?;
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn who_comes_first_is_told_what_to_do() {
    netns::within_new(|| {
        let mut stage = Stage::bare(1)?;
        let before = tcpdump(&stage, 0, Host::All)?;
        let refused = stage.run(0, &["-i", MONITOR])?;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        let expected = "applications capture on device mon with the XDP engine";
        ensure!(
            !refused.status.success() && said.contains(expected),
            "{said}"
        );
        before.stop()?;
        stage.start(0)?;
        stage.await_output(0, "loaded topology")?;
        let behind = tcpdump(&stage, 0, Host::All)?;
        stage.kill(0)?;
        let done = stage.run(0, &["-i", MONITOR, "--detach"])?;
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let expected = "applications that captured on device mon with the XDP engine have lost it";
        ensure!(done.status.success() && said.contains(expected), "{said}");
        let ended = behind.wait()?;
        let expected = "The BPF program was detached";
        ensure!(ended.said.contains(expected), "{}", ended.said);
        // The device is free, so tcpdump's own engine attaches.
        let again = tcpdump(&stage, 0, Host::All)?;
        stage.send(0..100)?;
        ensure!(rest(&[&again], 100)? == [100]);
        Ok(())
    })
    .unwrap();
}
