//! An etcd with users. Each user may write only its own keys. If etcd has forgotten a client's
//! token, the client gets a new one.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_etcd::coordination::Desired;
use fanpcap_etcd::{CallError, Client, Credentials, Failure, Keys, Settings};
use fanpcap_testkit::{Etcd, netns};

use crate::calls::{Unconditional as _, settings};
use crate::cluster::{NODE, TTL, await_topology, await_view, coordinator, names, node, topology};

/// The page of the manual with the commands that make a role for nodes, for coordinators and for
/// operators.
const PAGE: &str = include_str!("../../../../docs/etcd.md");

/// Makes the roles by the commands of [`PAGE`], and turns authentication on.
fn set_up(etcd: &Etcd) -> Result<()> {
    let commands = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("    etcdctl role "))
        .map(|line| line.replace("CLUSTER", "lab"));
    for command in commands {
        let words = ["role"].into_iter().chain(command.split(' '));
        let words: Vec<&str> = words.collect();
        etcd.ctl(&words).with_context(|| command.clone())?;
    }
    etcd.ctl(&["user", "add", "root:root"])?;
    etcd.ctl(&["user", "grant-role", "root", "root"])?;
    for user in ["node", "coordinator", "operator"] {
        etcd.ctl(&["user", "add", &format!("{user}:{user}")])?;
        etcd.ctl(&["user", "grant-role", user, &format!("fanpcap-{user}")])?;
    }
    etcd.ctl(&["auth", "enable"])?;
    Ok(())
}

fn as_user(etcd: &Etcd, user: &str, password: &str) -> Result<Settings> {
    Ok(Settings {
        credentials: Some(Credentials {
            user: user.to_owned(),
            password: password.to_owned(),
        }),
        ..settings(etcd)?
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn roles_suffice_and_tokens_are_renewed_when_etcd_restarts() -> Result<()> {
    netns::within_new(|| {
        let mut etcd = Etcd::start(3, &[])?;
        set_up(&etcd)?;
        let coordinators = as_user(&etcd, "coordinator", "coordinator")?;
        let mut leader = coordinator(&coordinators, TTL, "one")?;
        await_view(&mut leader, "the lead", |view| view.leads)?;
        let mut node = node(&as_user(&etcd, "node", "node")?, TTL, 1)?;
        let first = leader.write(&topology(1), None)?;
        await_topology(&mut node, 1)?;
        node.acknowledge(first);
        let operator = Client::new(&as_user(&etcd, "operator", "operator")?)?;
        Desired::change(&operator, &names(), |desired| {
            desired.drained.insert(NODE);
        })?;
        await_view(&mut leader, "all of it", |view| {
            let acknowledged = view.live.first().and_then(|one| one.acknowledged);
            acknowledged == Some(first) && view.desired.drained.contains(&NODE)
        })?;
        // etcd's members keep tokens only in memory. After their restart, no token is valid.
        for index in 0..3 {
            etcd.kill(index)?;
        }
        for index in 0..3 {
            etcd.restart(index)?;
        }
        await_view(&mut leader, "the lead", |view| view.leads)?;
        await_view(&mut leader, "the node", |view| view.live.len() == 1)?;
        let second = leader.write(&topology(2), Some(first))?;
        ensure!(await_topology(&mut node, 2)? == second);
        Desired::change(&operator, &names(), |desired| desired.drained.clear())?;
        await_view(&mut leader, "the change", |view| {
            view.desired.drained.is_empty()
        })?;
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn a_node_may_write_no_topology_and_no_drains() -> Result<()> {
    netns::within_new(|| {
        let etcd = Etcd::start(1, &[])?;
        set_up(&etcd)?;
        let is_denied = |result: Result<i64, CallError>| {
            result.is_err_and(|error| {
                let is_refused = matches!(error.failure, Failure::Refused(_));
                is_refused && error.reason.contains("permission denied")
            })
        };
        let names = names();
        let node = Client::new(&as_user(&etcd, "node", "node")?)?;
        node.put(&names.node(NODE), b"", 0)?;
        node.put(&names.ack(NODE), b"", 0)?;
        node.range(&Keys::One(names.topology()))?;
        let coordinator = Client::new(&as_user(&etcd, "coordinator", "coordinator")?)?;
        coordinator.put(&names.topology(), b"", 0)?;
        let candidate = format!("{}/1", names.election()).into_bytes();
        for key in [names.topology(), names.desired(), candidate] {
            ensure!(is_denied(node.put(&key, b"", 0)));
        }
        for key in [names.node(NODE), names.desired()] {
            ensure!(is_denied(coordinator.put(&key, b"", 0)));
        }
        let operator = Client::new(&as_user(&etcd, "operator", "operator")?)?;
        operator.put(&names.desired(), b"{}", 0)?;
        operator.range(&names.all())?;
        for key in [names.node(NODE), names.topology()] {
            ensure!(is_denied(operator.put(&key, b"", 0)));
        }
        // etcd must also refuse a watch without permission: a silent watch would look like keys
        // that do not change.
        ensure!(is_denied(node.watch(&names.all(), 1).map(|_| 0)));
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn a_wrong_password_is_told_at_once() -> Result<()> {
    netns::within_new(|| {
        let etcd = Etcd::start(1, &[])?;
        set_up(&etcd)?;
        let mut node = node(&as_user(&etcd, "node", "wrong")?, TTL, 1)?;
        let refused = (0..50).find_map(|_| node.poll(Duration::from_millis(100)).err());
        let refused = refused.context("the refusal was not reported")?.to_string();
        ensure!(refused.contains("invalid user ID or password"), "{refused}");
        let mut leader = coordinator(&settings(&etcd)?, TTL, "one")?;
        let refused = (0..50).find_map(|_| match leader.poll(Duration::from_millis(100)) {
            Err(error) => Some(error.to_string()),
            Ok(_) => None,
        });
        ensure!(refused.is_some_and(|text| text.contains("user name is empty")));
        Ok(())
    })
}
