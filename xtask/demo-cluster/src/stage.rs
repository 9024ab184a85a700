//! The demo's machines: a mirror port, nodes in namespaces, an etcd of three members, coordinators.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fanpcap_cluster::control::OperatorChange;
use fanpcap_cluster::{LiveNode, NodeId};
use fanpcap_clusterd::conf::{Conf, Engine};
use fanpcap_clusterd::coordination::OperatorSide;
use fanpcap_clusterd::etcd::EtcdKeys;
use fanpcap_select::Selection;
use fanpcap_terminal::streams;
use fanpcap_testkit::await_for::{self, await_for};
use fanpcap_testkit::etcd::Etcd;
use fanpcap_testkit::library::library_dir;
use fanpcap_testkit::mirror::{HOST, MONITOR};
use fanpcap_testkit::{Capture, Mirror, Scratch, veth};

/// Time limit for each step of the cluster, long enough for a busy machine.
pub(crate) const PATIENCE: Duration = await_for::LIMIT;

/// The addresses of etcd's members.
const MEMBERS: [Ipv4Addr; 3] = [
    Ipv4Addr::new(192, 0, 2, 251),
    Ipv4Addr::new(192, 0, 2, 252),
    Ipv4Addr::new(192, 0, 2, 253),
];

/// The machines. Dropping this value ends all processes and detaches the selections.
pub(crate) struct Stage {
    pub(crate) mirror: Mirror,
    pub(crate) etcd: Etcd,
    scratch: Scratch,
    config: PathBuf,
    keys: RefCell<EtcdKeys>,
    nodes: Vec<Node>,
    coordinators: Vec<Child>,
}

/// A node's processes; `None` for a process that does not run.
#[derive(Default)]
struct Node {
    agent: Option<Child>,
    reader: Option<Child>,
}

impl Stage {
    /// Starts the machines, without nodes. Also returns the socket to which nodes report. The
    /// calling thread moves to a namespace of its own.
    ///
    /// # Errors
    /// Fails if a program is not installed or can't be started.
    pub(crate) fn new() -> Result<(Self, TcpListener)> {
        let mirror = Mirror::new(0)?;
        for member in MEMBERS {
            veth::ip(&format!("address add {member}/32 dev lo"))?;
        }
        let etcd = Etcd::start_on(&MEMBERS, &[])?;
        let reports = TcpListener::bind((HOST, 0))?;
        let scratch = Scratch::new()?;
        let text = format!(
            "cluster = demo\nengine = etcd\netcd = {}\netcd_unencrypted = yes\nanalyzers = {}\nhold_down = 3s\n\
             select = packet\n",
            etcd.endpoints().join(", "),
            reports.local_addr()?
        );
        let config = scratch.write("cluster.conf", &text)?;
        let conf = Conf::load(&config)?;
        let Engine::Etcd(settings) = &conf.engine else {
            bail!("the engine is etcd");
        };
        let stage = Self {
            keys: EtcdKeys::new(&conf.cluster, settings)?.into(),
            mirror,
            etcd,
            scratch,
            config,
            nodes: Vec::new(),
            coordinators: Vec::new(),
        };
        Ok((stage, reports))
    }

    /// Starts a coordinator, which becomes active if no other coordinator is active, and a standby
    /// otherwise.
    ///
    /// # Errors
    /// Fails if the coordinator can't be started.
    pub(crate) fn start_coordinator(&mut self) -> Result<()> {
        let name = format!("coordinator{}", self.coordinators.len());
        let mut command = self.program(&name, "coordinator")?;
        self.coordinators.push(command.spawn()?);
        Ok(())
    }

    /// Kills the coordinator that leads, and returns its name.
    ///
    /// # Errors
    /// Fails if no coordinator leads.
    pub(crate) fn kill_coordinator(&mut self) -> Result<String> {
        let name = self.leader()?.context("no coordinator leads")?;
        let of_process = |child: &&mut Child| name.ends_with(&format!("/{}", child.id()));
        let child = self.coordinators.iter_mut().find(of_process);
        let child = child.with_context(|| format!("coordinator {name} is none of ours"))?;
        child.kill()?;
        child.wait()?;
        Ok(name)
    }

    /// The name of the coordinator that leads: its machine and its process id.
    ///
    /// # Errors
    /// Fails if etcd does not answer.
    pub(crate) fn leader(&self) -> Result<Option<String>> {
        Ok(self.keys.borrow_mut().look()?.leader)
    }

    /// The cluster's selection, from the present topology.
    ///
    /// # Errors
    /// Fails if the cluster has no topology yet.
    pub(crate) fn selection(&self) -> Result<Selection> {
        let view = self.keys.borrow_mut().look()?.view;
        let (_, topology) = view.topology.context("no topology")?;
        Ok(topology.selection)
    }

    /// Adds a node: a namespace behind the mirror port, with an agent.
    ///
    /// # Errors
    /// Fails if the namespace can't be created, or the agent can't be started.
    pub(crate) fn add_node(&mut self) -> Result<usize> {
        let node = self.mirror.add()?;
        let mut agent = self.program(&agent_name(node), "node")?;
        agent.args(["-i", MONITOR, "--node", &id(node).to_string()]);
        let agent = self.mirror.on_node(node, || Ok(agent.spawn()?));
        self.nodes.push(Node {
            agent: Some(agent?),
            reader: None,
        });
        Ok(node)
    }

    /// Waits until a node has a topology, then starts tcpdump on it. Without a topology all packets
    /// pass the selection.
    ///
    /// # Errors
    /// Fails if the node gets no topology in time, or tcpdump does not begin.
    pub(crate) fn read(&mut self, node: usize) -> Result<()> {
        let log = self.log(&agent_name(node));
        await_for("the node's topology", PATIENCE, || {
            let said = fs::read_to_string(&log)?;
            Ok(said.contains("loaded topology").then_some(()))
        })
        .with_context(|| self.output())?;
        self.nodes[node].reader = Some(self.start_reader(node)?);
        Ok(())
    }

    fn start_reader(&self, node: usize) -> Result<Child> {
        let file = self.capture(node);
        let log = File::create(self.scratch.file(&format!("tcpdump{node}")))?;
        let mut command = Command::new("tcpdump");
        command
            .args(["-n", "-U", "--immediate-mode", "-Z", "root", "-B", "32768"])
            .args(["-i", MONITOR, "-w"])
            .arg(&file)
            .stdin(Stdio::null())
            .stderr(log);
        let child = self.mirror.on_node(node, || Ok(command.spawn()?));
        let child = child.context("tcpdump")?;
        await_for("tcpdump to begin", PATIENCE, || {
            Ok(file.exists().then_some(()))
        })?;
        Ok(child)
    }

    /// Imitates the death of a node's machine: kills the node's processes, and lets no more packets
    /// reach the node's port.
    ///
    /// # Errors
    /// Fails if the node does not run.
    pub(crate) fn kill_node(&mut self, node: usize) -> Result<()> {
        let Node { agent, reader } = &mut self.nodes[node];
        for child in [agent, reader] {
            let mut child = child.take().context("the node does not run")?;
            child.kill()?;
            child.wait()?;
        }
        self.mirror.set_loss(node, 1.0)
    }

    /// Drains the node: it gets no buckets from now on.
    ///
    /// # Errors
    /// Fails if etcd does not accept the change.
    pub(crate) fn drain(&self, node: NodeId) -> Result<()> {
        self.keys.borrow_mut().change(&OperatorChange::Drain(node))
    }

    /// Waits until only these nodes have buckets, in a stable topology that all of them have
    /// acknowledged.
    ///
    /// # Errors
    /// Fails if no such topology comes before the time limit.
    pub(crate) fn await_owners(&self, owners: &[NodeId]) -> Result<()> {
        await_for("the topology", PATIENCE, || {
            let view = self.keys.borrow_mut().look()?.view;
            let Some((revision, topology)) = view.topology else {
                return Ok(None);
            };
            let has = |slot| topology.owners.contains(&Some(slot));
            let entries = topology.nodes.iter().filter(|entry| has(entry.slot));
            let found: BTreeSet<NodeId> = entries.map(|entry| entry.node).collect();
            let live = view.live.iter();
            let captures = |node: &NodeId| {
                let of_node = |it: &&LiveNode| it.announcement.node == *node;
                live.clone().find(of_node).and_then(|it| it.acknowledged) == Some(revision)
            };
            let settled = topology.new_owners.is_none() && owners.iter().all(captures);
            Ok((settled && found.iter().eq(owners)).then_some(()))
        })
        .with_context(|| self.output())
    }

    /// The numbers of the packets in each node's file. Waits until the files no longer grow.
    ///
    /// # Errors
    /// Fails if the files still grow at the time limit.
    pub(crate) fn captured(&self) -> Result<Vec<Vec<u64>>> {
        let files = || (0..self.nodes.len()).map(|node| self.capture(node));
        let len = |file: PathBuf| file.metadata().map_or(0, |it| it.len());
        let sizes = || files().map(len).collect::<Vec<_>>();
        let mut last = sizes();
        await_for("the last packets", PATIENCE, || {
            thread::sleep(Duration::from_millis(400));
            let now = sizes();
            Ok((std::mem::replace(&mut last, now.clone()) == now).then_some(()))
        })?;
        let numbers = |file: PathBuf| {
            let packets = Capture::read_so_far(&file).packets;
            packets
                .iter()
                .filter_map(|packet| packet.sequence)
                .collect()
        };
        Ok(files().map(numbers).collect())
    }

    /// The living nodes.
    pub(crate) fn living(&self) -> Vec<NodeId> {
        let nodes = self.nodes.iter().enumerate();
        let living = nodes.filter(|(_, node)| node.agent.is_some());
        living.map(|(node, _)| id(node)).collect()
    }

    fn capture(&self, node: usize) -> PathBuf {
        self.scratch.file(&format!("node{node}.pcap"))
    }

    /// The staged command with a subcommand. Its output goes to a file.
    fn program(&self, name: &str, subcommand: &str) -> Result<Command> {
        let log = File::create(self.log(name))?;
        let mut command = Command::new(library_dir()?.join("../bin/fanpcap"));
        command
            .args([subcommand, "--config"])
            .arg(&self.config)
            .stdin(Stdio::null())
            .stderr(log);
        Ok(command)
    }

    fn log(&self, name: &str) -> PathBuf {
        self.scratch.file(&format!("{name}.log"))
    }

    /// The output of all programs, for an error's message.
    fn output(&self) -> String {
        let nodes = (0..self.nodes.len()).map(agent_name);
        let coordinators = (0..self.coordinators.len()).map(|it| format!("coordinator{it}"));
        let said = nodes.chain(coordinators).map(|name| {
            let text = fs::read_to_string(self.log(&name)).unwrap_or_default();
            format!("{name}:\n{text}")
        });
        said.collect::<Vec<_>>().join("")
    }

    /// Ends all processes, and detaches the selections from the nodes' devices.
    ///
    /// # Errors
    /// Fails if a selection can't be detached.
    fn end(&mut self) -> Result<()> {
        let nodes = self.nodes.iter_mut();
        let of_nodes = nodes.flat_map(|node| [node.agent.take(), node.reader.take()]);
        let coordinators = self.coordinators.drain(..).map(Some);
        for mut child in of_nodes.chain(coordinators).flatten() {
            // The child may have ended already, which is no error.
            let _ = child.kill();
            let _ = child.wait();
        }
        for node in 0..self.nodes.len() {
            let mut command = self.program("detach", "node")?;
            command.args(["-i", MONITOR, "--detach"]);
            let status = self.mirror.on_node(node, || Ok(command.status()?))?;
            ensure!(status.success(), "node {}: {}", id(node), self.output());
        }
        self.nodes.clear();
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            streams::note(&format!("fanpcap: the demo's end: {error:#}\n"));
        }
    }
}

fn agent_name(node: usize) -> String {
    format!("node{node}")
}

/// The id of the node with this number.
pub(crate) fn id(node: usize) -> NodeId {
    NodeId(u32::try_from(node).map_or(u32::MAX, |node| node + 1))
}
