//! Nodes and coordinators that use etcd.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fanpcap_cluster::{DesiredState, NodeEvent, NodeId, Refusal, Revision, View, WriteError};
use fanpcap_etcd::coordination::{Desired, look};
use fanpcap_testkit::await_for::{await_for, within};
use fanpcap_testkit::{Etcd, netns};

use crate::calls::{Unconditional as _, client, settings};
use crate::cluster::{
    NODE, TTL, announcement, await_event, await_topology, await_view, coordinator, names, node,
    topology,
};

#[test]
#[ignore = "needs root: a network namespace"]
fn a_topology_goes_from_the_leader_to_the_nodes_and_is_acknowledged() -> Result<()> {
    netns::within_new(|| {
        let etcd = Etcd::start(3, &[])?;
        let settings = settings(&etcd)?;
        let mut leader = coordinator(&settings, TTL, "one")?;
        await_view(&mut leader, "the lead", |view| view.leads)?;
        let mut standby = coordinator(&settings, TTL, "two")?;
        let mut node = node(&settings, TTL, 1)?;
        await_view(&mut leader, "the node", |view| view.live.len() == 1)?;
        ensure!(leader.poll(Duration::ZERO)?.live[0].announcement == announcement(1));
        let first = leader.write(&topology(1), None)?;
        ensure!(await_topology(&mut node, 1)? == first);
        node.acknowledge(first);
        await_view(&mut leader, "the acknowledgement", |view| {
            view.live[0].acknowledged == Some(first)
        })?;
        await_view(&mut standby, "the topology", |view| {
            view.topology
                .as_ref()
                .is_some_and(|(revision, _)| *revision == first)
        })?;
        ensure!(matches!(
            standby.write(&topology(2), Some(first)),
            Err(WriteError::NotLeading)
        ));
        ensure!(matches!(
            leader.write(&topology(2), None),
            Err(WriteError::Changed)
        ));
        let second = leader.write(&topology(2), Some(first))?;
        ensure!(second > first && await_topology(&mut node, 2)? == second);
        let seen = look(&client(&etcd)?, &names(), &DesiredState::default())?;
        ensure!(seen.leader.as_deref() == Some("one") && seen.notes.is_empty());
        let seen = seen.view;
        ensure!(seen.live.len() == 1 && !seen.leads);
        ensure!(
            seen.topology
                .is_some_and(|(revision, _)| revision == second)
        );
        leader.resign();
        let waited = await_view(&mut standby, "the lead", |view| view.leads)?;
        ensure!(waited < within(Duration::from_secs(1)), "{waited:?}");
        ensure!(matches!(
            leader.write(&topology(3), Some(second)),
            Err(WriteError::NotLeading)
        ));
        standby.write(&topology(3), Some(second))?;
        await_topology(&mut node, 3)?;
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn a_silent_node_is_gone_and_a_silent_leader_replaced_within_their_limits() -> Result<()> {
    netns::within_new(|| {
        let etcd = Etcd::start(3, &[])?;
        let settings = settings(&etcd)?;
        let ttl = Duration::from_secs(5);
        let mut leader = coordinator(&settings, ttl, "one")?;
        await_view(&mut leader, "the lead", |view| view.leads)?;
        let mut standby = coordinator(&settings, ttl, "two")?;
        let node = node(&settings, ttl, 1)?;
        await_view(&mut standby, "the node", |view| view.live.len() == 1)?;
        // Neither the leader nor the node announces that it ends.
        let begun = Instant::now();
        drop(node);
        drop(leader);
        await_view(&mut standby, "the lead", |view| view.leads)?;
        let led = begun.elapsed();
        await_view(&mut standby, "no node", |view| view.live.is_empty())?;
        let gone = begun.elapsed();
        println!("took over after {led:?}, node gone after {gone:?}");
        ensure!(led <= within(Duration::from_secs(6)), "{led:?}");
        ensure!(gone <= within(Duration::from_secs(6)), "{gone:?}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn a_clone_is_refused_and_a_restarted_agent_is_not() -> Result<()> {
    netns::within_new(|| {
        let etcd = Etcd::start(1, &[])?;
        let settings = settings(&etcd)?;
        let mut leader = coordinator(&settings, TTL, "one")?;
        await_view(&mut leader, "the lead", |view| view.leads)?;
        leader.write(&topology(1), None)?;
        let mut first = node(&settings, TTL, 1)?;
        await_topology(&mut first, 1)?;
        let mut clone = node(&settings, TTL, 2)?;
        let refused = NodeEvent::Refused(Refusal::TakenId);
        let events = await_event(&mut clone, "a refusal", |event| *event == refused)?;
        ensure!(events == [NodeEvent::Reach(true), refused], "{events:?}");
        await_view(&mut leader, "the first", |view| {
            let node = view.live.first();
            node.is_some_and(|node| node.announcement.boot == 1)
        })?;
        // The node sends its event before it changes its key in etcd, so the test must wait for the
        // notes.
        let await_notes = |what, are_they: fn(&[String]) -> bool| {
            await_for(what, Duration::from_secs(10), || {
                let seen = look(&client(&etcd)?, &names(), &DesiredState::default())?;
                Ok(are_they(&seen.notes).then_some(()))
            })
        };
        await_notes("the clone's note", |notes| {
            let begin = "the machine at 10.0.0.7:7001, node 00000007, is refused: ";
            matches!(notes, [one] if one.starts_with(begin))
        })?;
        // The agent is killed, and started again before its lease has ended.
        drop(first);
        let begun = Instant::now();
        let mut again = node(&settings, TTL, 1)?;
        await_topology(&mut again, 1)?;
        ensure!(begun.elapsed() < within(Duration::from_secs(1)));
        ensure!(clone.poll(Duration::from_secs(3))?.is_empty());
        // The other machine is gone for good, so the id is free.
        drop(again);
        await_topology(&mut clone, 1)?;
        await_notes("no note", <[String]>::is_empty)?;
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn keys_that_somebody_deletes_are_written_again() -> Result<()> {
    netns::within_new(|| {
        let etcd = Etcd::start(1, &[])?;
        let settings = settings(&etcd)?;
        let mut leader = coordinator(&settings, TTL, "one")?;
        await_view(&mut leader, "the lead", |view| view.leads)?;
        let first = leader.write(&topology(1), None)?;
        let mut node = node(&settings, TTL, 1)?;
        await_topology(&mut node, 1)?;
        node.acknowledge(first);
        let is_whole = |view: &View| {
            let acknowledged = view.live.first().and_then(|one| one.acknowledged);
            view.leads && acknowledged == Some(first)
        };
        await_view(&mut leader, "all of it", is_whole)?;
        // Stores an older acknowledgement, as if etcd had been restored from a backup that was made
        // before the node's last acknowledgement.
        etcd.ctl(&["put", "--ignore-lease", "/fanpcap/lab/ack/00000007", "1"])?;
        await_view(&mut leader, "the old acknowledgement", |view| {
            view.live[0].acknowledged == Some(Revision(1))
        })?;
        node.acknowledge(first);
        await_view(&mut leader, "the newer one again", is_whole)?;
        etcd.ctl(&["del", "--prefix", "/fanpcap/lab/"])?;
        await_view(&mut leader, "nothing", |view| {
            !view.leads && view.topology.is_none()
        })?;
        await_view(&mut leader, "all of it again", is_whole)?;
        ensure!(matches!(
            leader.write(&topology(2), Some(first)),
            Err(WriteError::Changed)
        ));
        let second = leader.write(&topology(2), None)?;
        ensure!(second > first && await_topology(&mut node, 2)? == second);
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn what_the_operator_wants_is_seen_and_never_lost() -> Result<()> {
    netns::within_new(|| {
        let etcd = Etcd::start(1, &[])?;
        let settings = settings(&etcd)?;
        let client = client(&etcd)?;
        let mut leader = coordinator(&settings, TTL, "one")?;
        std::thread::scope(|scope| {
            let drains: Vec<_> = (0..4_u32)
                .map(|id| {
                    let client = &client;
                    let drain = move |desired: &mut Desired| {
                        desired.drained.insert(NodeId(id));
                    };
                    scope.spawn(move || Desired::change(client, &names(), drain))
                })
                .collect();
            drains
                .into_iter()
                .try_for_each(|one| one.join().unwrap().map(drop))
        })?;
        Desired::change(&client, &names(), |desired| {
            desired.weights.insert(NODE, 9);
        })?;
        await_view(&mut leader, "the changes", |view| {
            view.desired.drained.len() == 4 && view.desired.weights.get(&NODE) == Some(&9)
        })?;
        ensure!(
            etcd.ctl(&["get", "/fanpcap/lab/desired"])?
                .contains("00000003")
        );
        client.put(b"/fanpcap/lab/desired", b"?", 0)?;
        ensure!(Desired::change(&client, &names(), |_| ()).is_err());
        Ok(())
    })
}

/// The coordinator `first` stands for election before a coordinator of a later version.
#[test]
#[ignore = "needs root: a network namespace"]
fn a_candidate_that_cannot_read_the_topology_withdraws_until_it_can() -> Result<()> {
    netns::within_new(|| {
        let etcd = Etcd::start(1, &[])?;
        let client = client(&etcd)?;
        let mut first = coordinator(&settings(&etcd)?, TTL, "first")?;
        await_view(&mut first, "the lead", |view| view.leads)?;
        let lease = client.grant(Duration::from_secs(60))?;
        client.stand(&names().election(), lease, b"later")?;
        client.put(&names().topology(), b"of a later version", 0)?;
        let seen = await_for("another leader", Duration::from_secs(10), || {
            first.poll(Duration::ZERO)?;
            let seen = look(&client, &names(), &DesiredState::default())?;
            Ok((seen.leader.as_deref() == Some("later")).then_some(seen))
        })?;
        ensure!(first.unreadable.is_some());
        let said = &seen.notes;
        ensure!(
            matches!(&said[..], [one] if one.contains("can't be read")),
            "{said:?}"
        );
        // While the first coordinator can't read the topology, it must not become a candidate
        // again.
        let begun = Instant::now();
        while begun.elapsed() < TTL * 2 {
            ensure!(!first.poll(Duration::from_millis(20))?.leads);
        }
        client.revoke(lease)?;
        client.put(&names().topology(), &topology(1).encode(), 0)?;
        await_view(&mut first, "the lead", |view| view.leads)?;
        ensure!(first.unreadable.is_none());
        Ok(())
    })
}
