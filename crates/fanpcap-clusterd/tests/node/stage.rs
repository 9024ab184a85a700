//! Nodes with agents and tcpdump, and traffic for them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::mirror::{MONITOR, WIRE};
use fanpcap_testkit::{Capture, Injector, Mirror, Scratch, capture, traffic};

/// How many of 6000 packets each of three nodes captures. The bounds are wide, because all TCP
/// packets of a flow have the same identification, so half of the packets are in few buckets.
pub(crate) const SHARE: std::ops::Range<usize> = 1500..2500;

/// A mirror port with nodes. Each node has an agent and a tcpdump.
pub(crate) struct Stage {
    pub(crate) mirror: Mirror,
    pub(crate) scratch: Scratch,
    text: String,
    agents: Vec<Option<Child>>,
    readers: Vec<Child>,
}

impl Stage {
    /// Makes `count` nodes, and starts an agent and a tcpdump on each.
    pub(crate) fn new(count: usize) -> Result<Self> {
        let mut stage = Self::bare(count)?;
        stage.begin()?;
        Ok(stage)
    }

    /// Starts the agent and the tcpdump of each node.
    pub(crate) fn begin(&mut self) -> Result<()> {
        for node in 0..self.mirror.count() {
            self.start(node)?;
            self.await_output(node, "loaded topology")?;
        }
        (0..self.mirror.count()).try_for_each(|node| self.read(node))
    }

    /// Makes `count` nodes, and starts nothing on them.
    pub(crate) fn bare(count: usize) -> Result<Self> {
        let scratch = Scratch::new()?;
        let ids: Vec<String> = (0..count).map(id).collect();
        let nodes = ids.join(", ");
        // The nodes select by packet, because the traffic has so few flows that shares by flow
        // would be unequal.
        let text = format!(
            "cluster = test\nengine = fixed\nnodes = {nodes}\ninitial = 77\nselect = packet\n"
        );
        scratch.write("cluster.conf", &text)?;
        Ok(Self {
            text,
            mirror: Mirror::new(count)?,
            scratch,
            agents: (0..count).map(|_| None).collect(),
            readers: Vec::new(),
        })
    }

    /// Adds settings for all nodes.
    pub(crate) fn settings(&mut self, more: &str) -> Result<()> {
        self.text += more;
        self.scratch.write("cluster.conf", &self.text)?;
        Ok(())
    }

    /// Replaces the settings of all nodes.
    pub(crate) fn replace_settings(&mut self, text: &str) -> Result<()> {
        self.text.clear();
        self.settings(text)
    }

    /// The command line of this node's agent.
    pub(crate) fn agent(&self, node: usize, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fanpcap-cluster"));
        command
            .args(["node", "--config"])
            .arg(self.scratch.file("cluster.conf"));
        command.args(["--node", &id(node)]).args(words);
        command
    }

    /// Starts the agent of a node. Its messages are appended to the file of earlier agents'
    /// messages.
    pub(crate) fn start(&mut self, node: usize) -> Result<()> {
        self.start_with(node, &["-i", MONITOR])
    }

    /// Starts the agent of a node with these arguments.
    pub(crate) fn start_with(&mut self, node: usize, words: &[&str]) -> Result<()> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log(node))?;
        let mut command = self.agent(node, words);
        command.arg("--metrics").arg(self.metrics(node));
        command.stderr(log).stdin(Stdio::null());
        let child = self.mirror.on_node(node, || Ok(command.spawn()?))?;
        self.agents[node] = Some(child);
        Ok(())
    }

    /// Runs an agent with these arguments until it ends.
    pub(crate) fn run(&self, node: usize, words: &[&str]) -> Result<Output> {
        self.mirror
            .on_node(node, || Ok(self.agent(node, words).output()?))
    }

    /// Waits until the agent of a node ends by itself.
    pub(crate) fn await_end(&mut self, node: usize) -> Result<()> {
        let mut child = self.agents[node].take().context("an agent")?;
        await_for("the agent's end", LIMIT, || Ok(child.try_wait()?)).map(drop)
    }

    /// Kills the agent of a node.
    pub(crate) fn kill(&mut self, node: usize) -> Result<()> {
        let mut child = self.agents[node].take().context("an agent")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// The process id of a node's agent.
    pub(crate) fn pid(&self, node: usize) -> Result<u32> {
        Ok(self.agents[node].as_ref().context("an agent")?.id())
    }

    /// Sends SIGHUP to the agent of a node.
    pub(crate) fn hang_up(&self, node: usize) -> Result<()> {
        let pid = self.pid(node)?.to_string();
        let done = Command::new("kill").args(["-s", "HUP", &pid]).status()?;
        ensure!(done.success(), "kill -s HUP {pid}");
        Ok(())
    }

    fn metrics(&self, node: usize) -> PathBuf {
        self.scratch.file(&format!("node{node}.prom"))
    }

    /// The value of one of a node's metrics.
    pub(crate) fn metric(&self, node: usize, name: &str) -> Result<u64> {
        let text = fs::read_to_string(self.metrics(node))?;
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("fanpcap_node_{name}{{")));
        let number = line.and_then(|line| line.rsplit(' ').next());
        Ok(number
            .with_context(|| format!("{name} in {text}"))?
            .parse()?)
    }

    /// Waits until a node's metric is at least `least`. The node updates its metrics every second.
    pub(crate) fn await_metric(&self, node: usize, name: &str, least: u64) -> Result<()> {
        let wait = await_for(name, LIMIT, || {
            let count = self.metric(node, name).unwrap_or(0);
            Ok((count >= least).then_some(()))
        });
        wait.with_context(|| self.output(node))
    }

    fn log(&self, node: usize) -> PathBuf {
        self.scratch.file(&format!("agent{node}"))
    }

    /// The messages of all agents of a node.
    pub(crate) fn output(&self, node: usize) -> String {
        fs::read_to_string(self.log(node)).unwrap_or_default()
    }

    /// What another process has printed into the file `name`.
    pub(crate) fn said_by(&self, name: &str) -> String {
        fs::read_to_string(self.scratch.file(name)).unwrap_or_default()
    }

    /// Waits until an agent of the node has printed `text`.
    pub(crate) fn await_output(&self, node: usize, text: &str) -> Result<()> {
        let wait = await_for("the agent's words", LIMIT, || {
            Ok(self.output(node).contains(text).then_some(()))
        });
        wait.with_context(|| format!("{text:?} in: {}", self.output(node)))
    }

    fn file(&self, node: usize) -> PathBuf {
        self.scratch.file(&format!("node{node}.pcap"))
    }

    /// Starts tcpdump on a node's monitored device.
    pub(crate) fn read(&mut self, node: usize) -> Result<()> {
        let mut command = Command::new("tcpdump");
        command
            .args([
                "-n",
                "-U",
                "--immediate-mode",
                "-B",
                "32768",
                "-i",
                MONITOR,
                "-w",
            ])
            .arg(self.file(node));
        let said = self.scratch.new_file("tcpdump");
        command.stderr(File::create(&said)?);
        let child = self.mirror.on_node(node, || Ok(command.spawn()?))?;
        self.readers.push(child);
        await_for("tcpdump", LIMIT, || {
            Ok(fs::read_to_string(&said)?
                .contains("listening")
                .then_some(()))
        })
    }

    /// The frames with these numbers, which belong to 32 flows.
    pub(crate) fn frames(numbers: std::ops::Range<u64>) -> Result<Vec<traffic::Frame>> {
        traffic::frames(7, &traffic::flows(7, 8), numbers)
    }

    /// Sends the frames with these numbers, slowly enough for the nodes' queues.
    pub(crate) fn send(&self, numbers: std::ops::Range<u64>) -> Result<()> {
        let frames = Self::frames(numbers)?;
        let injector = Injector::open(WIRE)?;
        for part in frames.chunks(32) {
            injector.send_all(part)?;
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Waits until no more packets come. Returns how often each number was captured by all nodes
    /// together, and how many frames each node has.
    pub(crate) fn captured(&self) -> Result<(BTreeMap<u64, usize>, Vec<usize>)> {
        let count = |node| Capture::count_so_far(&self.file(node));
        let counts = || (0..self.mirror.count()).map(count).collect::<Vec<usize>>();
        let mut last = counts();
        let each = await_for("the last frames", LIMIT, || {
            thread::sleep(Duration::from_millis(300));
            let now = counts();
            Ok((std::mem::replace(&mut last, now.clone()) == now).then_some(now))
        })?;
        let captures: Vec<Capture> = (0..self.mirror.count())
            .map(|node| Capture::read_so_far(&self.file(node)))
            .collect();
        Ok((capture::sequences(&captures), each))
    }

    /// For each frame's number, the node that captured it last.
    pub(crate) fn nodes(&self) -> BTreeMap<u64, usize> {
        let of_node = |node| {
            let packets = Capture::read_so_far(&self.file(node)).packets.into_iter();
            packets.filter_map(move |packet| Some((packet.sequence?, node)))
        };
        (0..self.mirror.count()).flat_map(of_node).collect()
    }

    /// Asserts that each of these frames was captured exactly once, on any node.
    pub(crate) fn assert_once(&self, numbers: std::ops::Range<u64>) -> Result<Vec<usize>> {
        let (found, each) = self.captured()?;
        let missed = numbers
            .clone()
            .filter(|number| !found.contains_key(number))
            .count();
        let doubled = found.values().filter(|count| **count > 1).count();
        let strange = found
            .keys()
            .filter(|number| !numbers.contains(number))
            .count();
        ensure!(
            (missed, doubled, strange) == (0, 0, 0),
            "{missed} missed, {doubled} doubled, {strange} strange of {numbers:?}: {each:?}"
        );
        Ok(each)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for child in self.agents.iter_mut().flatten().chain(&mut self.readers) {
            let _ = child.kill();
            let _ = child.wait();
        }
        for node in 0..self.mirror.count() {
            let _ = self.run(node, &["-i", MONITOR, "--detach"]);
        }
    }
}

/// The id of a node.
pub(crate) fn id(node: usize) -> String {
    format!("a{}", node + 1)
}
