//! The embedded engine in network namespaces: two coordinators, three nodes, a forger and a
//! firewall.

use std::fs::{self, Permissions};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fanpcap_cluster::control::{
    Cause, ClusterId, Endpoint, Key, Keys, OperatorChange, Peer, Role, Status,
};
use fanpcap_cluster::{Announcement, NodeEvent, NodeId, Revision};
use fanpcap_clusterd::conf::{Conf, Embedded, Engine};
use fanpcap_clusterd::coordination::{NodeSide, OperatorSide};
use fanpcap_clusterd::embedded::{EmbeddedNode, EmbeddedOperator};
use fanpcap_testkit::await_for::{LIMIT, within};
use fanpcap_testkit::mirror::address;
use fanpcap_testkit::{Mirror, Scratch};

/// The settings' text. If `coordinators` is set, the text lists the first two machines.
fn text(scratch: &Scratch, coordinators: bool) -> String {
    let key = scratch.file("key");
    let list = match coordinators {
        true => format!("coordinators = {}:7700, {}:7700\n", address(0), address(1)),
        false => String::new(),
    };
    format!(
        "cluster = test\nkey_file = {}\n{list}multicast = 239.1.2.3:7701\nhold_down = 0s\n",
        key.display()
    )
}

fn embedded(conf: &Conf) -> &Embedded {
    let Engine::Embedded(embedded) = &conf.engine else {
        panic!("another engine");
    };
    embedded
}

struct Coordinator(Child);

impl Drop for Coordinator {
    fn drop(&mut self) {
        // Imitates a crash by SIGKILL. This fails if the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn coordinator(mirror: &Mirror, at: usize, scratch: &Scratch) -> Result<Coordinator> {
    let state = scratch.file(&format!("state{at}"));
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fanpcap-cluster"));
        command
            .args(["coordinator", "--config"])
            .arg(scratch.file("cluster.conf"));
        command.env("STATE_DIRECTORY", &state).stdin(Stdio::null());
        Ok(command.spawn()?)
    };
    mirror.on_node(at, start).map(Coordinator)
}

/// The thread of a node, in the namespace of the node's machine. It acknowledges each topology at
/// once.
fn node(
    mirror: &Mirror,
    at: usize,
    conf: Conf,
    told: Sender<(usize, NodeEvent)>,
    ends: Arc<AtomicBool>,
) -> Result<thread::JoinHandle<Result<u64>>> {
    let announcement = Announcement {
        node: NodeId(u32::try_from(at)?),
        boot: 7,
        weight: 1,
        address: (address(at), 0).into(),
        setup: None,
    };
    let work = move || {
        let mut side = EmbeddedNode::new(&conf, embedded(&conf), announcement)?;
        while !ends.load(Ordering::Relaxed) {
            for event in side.poll(Duration::from_millis(100))? {
                if let NodeEvent::Topology(revision, _) = &event {
                    side.acknowledge(*revision);
                }
                let _ = told.send((at, event));
            }
        }
        Ok(side.refused(Cause::Foreign))
    };
    mirror.on_node(at, || Ok(thread::spawn(work)))
}

/// Waits until all three nodes follow one topology in which `entries` nodes have buckets.
fn await_topology(told: &Receiver<(usize, NodeEvent)>, entries: usize) -> Result<Revision> {
    let mut follows = [None; 3];
    let end = Instant::now() + LIMIT;
    loop {
        let wait = end.saturating_duration_since(Instant::now());
        let (at, event) = told.recv_timeout(wait).context("no such topology came")?;
        ensure!(event != NodeEvent::Reach(false), "node {at} was cut off");
        if let NodeEvent::Topology(revision, topology) = event {
            let with = |slot| topology.owners.contains(&Some(slot));
            let own = topology
                .nodes
                .iter()
                .filter(|entry| with(entry.slot))
                .count();
            let stable = topology.new_owners.is_none();
            follows[at - 2] = (own == entries && stable).then_some(revision);
        }
        if let [Some(one), Some(two), Some(three)] = follows {
            if one == two && two == three {
                return Ok(one);
            }
        }
    }
}

/// Sends a coordinator datagrams that were made without the key.
fn forge(at: usize) -> Result<()> {
    let keys = Keys {
        current: Key::new(vec![66; 32]).context("32 bytes")?,
        other: None,
    };
    let me = Peer {
        role: Role::Operator,
        id: 1,
    };
    let body = fanpcap_cluster::control::Body::OperatorChange(OperatorChange::Drain(NodeId(2)));
    let mut forger = Endpoint::new(me, ClusterId::of_name("test"), keys, [1; 32]);
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    for _ in 0..50 {
        for datagram in forger.seal(None, &body, 0) {
            socket.send_to(&datagram, (address(at), 7700))?;
        }
        socket.send_to(&[0x66; 1300], (address(at), 7700))?;
    }
    Ok(())
}

/// The settings of all machines.
fn settings(scratch: &Scratch) -> Result<Conf> {
    scratch.write("key", "0123456789abcdef0123456789abcdef")?;
    fs::set_permissions(scratch.file("key"), Permissions::from_mode(0o600))?;
    let path: PathBuf = scratch.write("cluster.conf", &text(scratch, true))?;
    Ok(Conf::load(&path)?)
}

/// A firewall rule on the active coordinator's machine drops all incoming packets.
#[test]
#[ignore = "needs root: network namespaces"]
fn a_coordinator_that_can_not_receive_is_replaced() -> Result<()> {
    let scratch = Scratch::new()?;
    let conf = settings(&scratch)?;
    let mirror = Mirror::new(5)?;
    let coordinators = [0, 1].map(|at| coordinator(&mirror, at, &scratch));
    let (tell, told) = mpsc::channel();
    let ends = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
    let start =
        |(at, ends): (usize, _)| node(&mirror, at, conf.clone(), tell.clone(), Arc::clone(ends));
    let nodes: Vec<_> = (2..).zip(&ends).map(start).collect::<Result<_>>()?;
    await_topology(&told, 3)?;
    let operator = EmbeddedOperator::new(&conf, embedded(&conf));
    let leader = operator.status()?.leader.number;

    mirror.deafen(usize::from(leader))?;
    let begin = Instant::now();
    let wait = |limit: u64, is_so: &dyn Fn(&Status) -> bool| loop {
        let has_come = operator.status().is_ok_and(|status| is_so(&status));
        let took = begin.elapsed();
        ensure!(took <= within(Duration::from_secs(limit)), "{took:?}");
        if has_come {
            println!("after {took:?}");
            return Ok(());
        }
    };
    // The node's machine fails. So the node does not announce that it leaves.
    ends[2].store(true, Ordering::Relaxed);
    wait(6, &|status| status.leader.number == 1 - leader)?;
    wait(20, &|status| {
        let topology = status.topology.as_ref();
        topology.is_some_and(|(_, topology)| {
            let dead = topology.entry(NodeId(4)).map(|entry| entry.slot);
            topology.new_owners.is_none() && (dead.is_none() || !topology.owners.contains(&dead))
        })
    })?;
    ends.iter()
        .for_each(|end| end.store(true, Ordering::Relaxed));
    for node in nodes {
        node.join().ok().context("a node's thread panicked")??;
    }
    drop(coordinators);
    Ok(())
}

#[test]
#[ignore = "needs root: network namespaces"]
fn a_standby_takes_over_and_nobody_else_is_heard() -> Result<()> {
    let scratch = Scratch::new()?;
    let conf = settings(&scratch)?;
    // The finder's settings have no coordinator. It finds the coordinator by the multicast
    // announcement.
    let finder = Conf::parse(&text(&scratch, false), "finder")?;
    let mirror = Mirror::new(5)?;
    let mut coordinators = [0, 1].map(|at| coordinator(&mirror, at, &scratch).map(Some));
    let (tell, told) = mpsc::channel();
    let ends = Arc::new(AtomicBool::new(false));
    let confs = [conf.clone(), conf.clone(), finder];
    let start = |(at, conf)| node(&mirror, at, conf, tell.clone(), ends.clone());
    let nodes: Vec<_> = (2..).zip(confs).map(start).collect::<Result<_>>()?;
    let first = await_topology(&told, 3)?;

    let mut operator = EmbeddedOperator::new(&conf, embedded(&conf));
    let before = operator.status()?;
    let leader = usize::from(before.leader.number);
    forge(leader)?;
    let status = operator.status()?;
    let refused = |cause: Cause| {
        let of = |status: &fanpcap_cluster::control::Status| -> u32 {
            let all = status
                .refused
                .iter()
                .filter(|(one, _)| *one == cause as u32);
            all.map(|(_, count)| *count).sum()
        };
        of(&status) - of(&before)
    };
    let [key, seal, foreign] = [Cause::Key, Cause::Seal, Cause::Foreign].map(refused);
    ensure!(key + seal == 50 && foreign == 50, "{key} {seal} {foreign}");
    ensure!(status.desired.drained.is_empty() && status.members.len() == 3);

    let killed = Instant::now();
    let victim = coordinators[leader].as_mut().ok().context("the leader")?;
    drop(victim.take());
    let status = operator.status()?;
    let took = killed.elapsed();
    println!("successor after {took:?}");
    ensure!(
        took <= within(Duration::from_secs(6)),
        "the successor took {took:?}"
    );
    ensure!(usize::from(status.leader.number) == 1 - leader && status.members.len() == 3);
    ensure!(
        status
            .topology
            .is_some_and(|(revision, _)| revision >= first)
    );

    operator.change(&OperatorChange::Drain(NodeId(3)))?;
    ensure!(
        await_topology(&told, 2)? > first,
        "the successor's topologies are newer"
    );
    ends.store(true, Ordering::Relaxed);
    for node in nodes {
        node.join().ok().context("a node's thread panicked")??;
    }
    Ok(())
}
