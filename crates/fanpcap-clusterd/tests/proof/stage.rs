//! A whole cluster: etcd or the embedded engine, coordinators, nodes, an analyzer, and traffic.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_testkit::mirror::HOST;
use fanpcap_testkit::{Etcd, Mirror, Scratch, await_for, member, veth};
use serde_json::Value;

use crate::account::{Line, Truth};
use crate::files;
use crate::legs;
use crate::readers::Reader;
use crate::wire::{RATE, Sender};

/// The time limit for each step of the cluster, long enough for a busy machine.
pub(crate) const PATIENCE: Duration = LIMIT;

/// The time between two looks at the cluster's state.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// The file with the analyzer's account of each bucket.
pub(crate) const BUCKETS: &str = "buckets.csv";

/// If nothing changes for this many nanoseconds, the traffic has stopped, because each node sends a
/// report every second.
pub(crate) const REST: u64 = 2_000_000_000;

/// The coordination engine of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Engine {
    /// An etcd with this number of members.
    Etcd(u8),
    /// The embedded engine, with its default times.
    Embedded,
}

/// A cluster holds the write lock while it gets packets, because two such clusters at the same time
/// would make each other lose packets. A cluster holds the read lock while it is built or its files
/// are checked, which takes CPU time. Without traffic a cluster needs no lock.
static MACHINE: RwLock<()> = RwLock::new(());

/// The cluster. Dropping this value ends all processes and detaches the selections.
pub(crate) struct Stage {
    pub(crate) mirror: Mirror,
    pub(crate) scratch: Scratch,
    pub(crate) etcd: Option<Etcd>,
    pub(crate) agents: Vec<Option<Child>>,
    /// One tcpdump for each device of each node.
    pub(crate) readers: Vec<Reader>,
    coordinators: Vec<Child>,
    analyzer: Option<Child>,
    pub(crate) sender: Option<Sender>,
    /// Packets a second that are sent if the machine is fast enough.
    pub(crate) target_rate: u64,
    /// How many packets were sent.
    pub(crate) sent: u64,
    /// For how long packets were sent.
    lasted: Duration,
    /// Whether an analyzer takes the packets. Otherwise tcpdump captures on each node.
    pub(crate) ships: bool,
    /// The names of each node's devices: one device, or the two legs of a tap.
    pub(crate) devices: &'static [&'static str],
    /// The write lock of [`MACHINE`], held while the cluster gets packets.
    alone: Option<RwLockWriteGuard<'static, ()>>,
}

impl Stage {
    /// A cluster of three nodes, with the additional settings `more`. Returns when each node has
    /// its share of the buckets. In capture mode an analyzer writes files. In distribution mode
    /// tcpdump captures on each node.
    pub(crate) fn new(engine: Engine, more: &str) -> Result<Self> {
        Self::prepared(engine, more, |_| Ok(()))
    }

    /// Does what [`Stage::new`] does, but first prepares the directory for the analyzer's files.
    pub(crate) fn prepared(
        engine: Engine,
        more: &str,
        prepare: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Self> {
        let _beside_others = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        let mut stage = Self::bare(engine, more)?;
        prepare(&stage.records())?;
        stage.start_coordinator()?;
        stage.start_analyzer()?;
        legs::add_nodes(&mut stage.mirror, stage.devices)?;
        for node in 0..3 {
            stage.agents.push(None);
            stage.start(node)?;
        }
        stage.await_owners(&[0, 1, 2])?;
        if !stage.ships {
            for node in 0..3 {
                for device in stage.devices {
                    let kept = stage.kept(node, device);
                    let reader = Reader::start(&stage.mirror, node, device, &kept)?;
                    stage.readers.push(reader);
                }
            }
        }
        stage.await_line("all nodes' reports", |line| {
            (0..3).all(|node| line.verdict(&id(node)).is_some())
        })?;
        // Until a node's second report, the account knows only an upper and a lower limit of that
        // node's packets. If the first node in the ledger died before its second report, the
        // account would never become exact.
        stage.await_rest()?;
        Ok(stage)
    }

    fn bare(engine: Engine, more: &str) -> Result<Self> {
        let mirror = Mirror::new(0)?;
        let scratch = Scratch::new()?;
        let mut etcd = None;
        let coordination = match engine {
            Engine::Etcd(members) => {
                let hosts = (0..members).map(|it| Ipv4Addr::new(192, 0, 2, 240 + it));
                let hosts: Vec<_> = hosts.collect();
                for host in &hosts {
                    veth::ip(&format!("address add {host}/32 dev lo"))?;
                }
                let started = Etcd::start_on(&hosts, &[])?;
                let endpoints = started.endpoints().join(", ");
                let text = format!("engine = etcd\netcd = {endpoints}\netcd_unencrypted = yes\n");
                etcd = Some(started);
                text
            }
            Engine::Embedded => {
                let key = scratch.write("key", "0123456789abcdef0123456789abcdef")?;
                fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
                let key = key.display();
                format!("key_file = {key}\ncoordinators = {HOST}:7700\n")
            }
        };
        let analyzers = match more.contains("analyzers =") {
            true => String::new(),
            false => format!("analyzers = {HOST}:7710\n"),
        };
        let select = match more.contains("select") {
            true => "",
            false => "select = packet\n",
        };
        let text =
            format!("cluster = proof\n{coordination}{analyzers}hold_down = 0s\n{select}{more}");
        scratch.write("cluster.conf", &text)?;
        Ok(Self {
            mirror,
            scratch,
            etcd,
            agents: Vec::new(),
            readers: Vec::new(),
            coordinators: Vec::new(),
            analyzer: None,
            sender: None,
            target_rate: RATE,
            sent: 0,
            lasted: Duration::ZERO,
            ships: more.contains("mode = capture"),
            devices: legs::devices(more),
            alone: None,
        })
    }

    /// The program with a subcommand. Its messages are appended to a file.
    pub(crate) fn program(&self, name: &str, words: &[&str]) -> Result<Command> {
        let path = self.scratch.file(&format!("{name}.log"));
        let log = File::options().create(true).append(true).open(path)?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_fanpcap-cluster"));
        command.args(words).arg("--config");
        command.arg(self.scratch.file("cluster.conf"));
        command.env("STATE_DIRECTORY", self.scratch.file(""));
        command.stdin(Stdio::null()).stderr(log);
        Ok(command)
    }

    pub(crate) fn start_coordinator(&mut self) -> Result<()> {
        let name = format!("coordinator{}", self.coordinators.len());
        let child = self.program(&name, &["coordinator"])?.spawn()?;
        self.coordinators.push(child);
        Ok(())
    }

    /// Kills the coordinator that leads, and returns its name. With the embedded engine, the tests
    /// run a single coordinator.
    pub(crate) fn kill_coordinator(&mut self) -> Result<String> {
        let name = self.leader()?.context("no coordinator leads")?;
        let is_only = self.etcd.is_none();
        let of_process =
            |child: &&mut Child| is_only || name.ends_with(&format!("/{}", child.id()));
        let child = self.coordinators.iter_mut().find(of_process);
        end(child.with_context(|| format!("coordinator {name} is none of ours"))?)?;
        Ok(name)
    }

    /// The name of the coordinator that leads.
    pub(crate) fn leader(&self) -> Result<Option<String>> {
        let status = self.ask(&["status", "--json"])?;
        Ok(status["coordinator"].as_str().map(str::to_owned))
    }

    /// Starts an analyzer, which continues the files of the earlier analyzer. Its messages are
    /// appended to a file.
    pub(crate) fn start_analyzer(&mut self) -> Result<()> {
        // The new file does not contain what an earlier analyzer printed.
        let printed = File::create(self.scratch.file("analyzer.json"))?;
        let mut command = self.program("analyzer", &["analyzer", "--json"])?;
        command.arg("--buckets").arg(self.scratch.file(BUCKETS));
        if self.ships {
            command.arg("--write").arg(self.scratch.file("records"));
        }
        self.analyzer = Some(command.stdout(printed).spawn()?);
        self.await_line("the analyzer", |_| true).map(drop)
    }

    /// Kills the analyzer.
    pub(crate) fn kill_analyzer(&mut self) -> Result<()> {
        end(&mut self.analyzer.take().context("no analyzer runs")?)
    }

    /// Starts the agent of a node.
    pub(crate) fn start(&mut self, node: usize) -> Result<()> {
        let name = format!("agent{node}");
        let id = id(node);
        let devices = self.devices.join(",");
        let mut command = self.program(&name, &["node", "-i", &devices, "--node", &id])?;
        let metrics = self.scratch.file(&format!("node{node}.prom"));
        command.arg("--metrics").arg(metrics);
        let child = self.mirror.on_node(node, || Ok(command.spawn()?))?;
        self.agents[node] = Some(child);
        Ok(())
    }

    /// Kills the agent of a node.
    pub(crate) fn kill(&mut self, node: usize) -> Result<()> {
        end(&mut self.agents[node].take().context("no agent runs")?)
    }

    /// Sends a signal, such as STOP, to the agent of a node.
    pub(crate) fn signal(&self, node: usize, name: &str) -> Result<()> {
        let agent = self.agents[node].as_ref().context("no agent runs")?;
        member::signal(agent.id(), name)
    }

    /// Ends the agent of a node, as systemd would.
    pub(crate) fn stop(&mut self, node: usize) -> Result<()> {
        self.signal(node, "TERM")?;
        let mut agent = self.agents[node].take().context("no agent runs")?;
        ensure!(agent.wait()?.success(), "{}", self.output());
        Ok(())
    }

    /// Starts the traffic. Until [`Stage::rest`], no other cluster gets packets.
    pub(crate) fn send(&mut self) {
        self.alone = Some(MACHINE.write().unwrap_or_else(PoisonError::into_inner));
        self.sender = Some(legs::sender(self.devices, self.sent, self.target_rate));
    }

    /// Stops the traffic. Returns how many packets were sent in all.
    pub(crate) fn rest(&mut self) -> Result<u64> {
        let sender = self.sender.take().context("no packets come")?;
        let (sent, lasted) = sender.stop()?;
        self.sent = sent;
        self.lasted += lasted;
        self.alone = None;
        Ok(sent)
    }

    /// The rate at which packets were sent, in thousands a second.
    pub(crate) fn rate(&self) -> f64 {
        self.sent as f64 / self.lasted.as_secs_f64() / 1000.0
    }

    /// Sends packets for this time.
    pub(crate) fn send_for(&mut self, time: Duration) -> Result<()> {
        self.send();
        thread::sleep(time);
        self.rest().map(drop)
    }

    /// Runs `fanpcap cluster` with these arguments.
    pub(crate) fn cluster(&self, words: &[&str]) -> Result<String> {
        let words = [&["cluster"], words].concat();
        let done = self.program("operator", &words)?.output()?;
        ensure!(done.status.success(), "{words:?}: {}", self.output());
        Ok(String::from_utf8(done.stdout)?)
    }

    pub(crate) fn ask(&self, words: &[&str]) -> Result<Value> {
        Ok(serde_json::from_str(&self.cluster(words)?)?)
    }

    /// The analyzer's last line.
    pub(crate) fn line(&self) -> Option<Line> {
        Line::last(&fs::read_to_string(self.scratch.file("analyzer.json")).ok()?)
    }

    /// All lines that the analyzer has printed.
    pub(crate) fn lines(&self) -> Result<Vec<Line>> {
        let printed = fs::read_to_string(self.scratch.file("analyzer.json"))?;
        Ok(Line::all(&printed))
    }

    /// Waits until `wanted` returns `true` for the analyzer's last line.
    pub(crate) fn await_line(
        &self,
        what: &str,
        mut wanted: impl FnMut(&Line) -> bool,
    ) -> Result<Line> {
        let found = await_for(what, PATIENCE, || {
            thread::sleep(LOOK);
            Ok(self.line().filter(|line| wanted(line)))
        });
        found.with_context(|| {
            let last = self.line().map(|line| line.to_string());
            let dropped = self.mirror.dropped();
            format!(
                "{}\nthe last line: {last:?}; {} sent, the mirror dropped {dropped:?}",
                self.output(),
                self.sent
            )
        })
    }

    /// Waits until the analyzer knows exactly how many packets were offered and captured, and the
    /// nodes' reports do not change for a while.
    pub(crate) fn await_rest(&self) -> Result<Line> {
        let mut first: Option<Line> = None;
        self.await_line("an account at rest", |line| {
            let is_exact = line.is("offered", self.sent) && line.is_exact("captured");
            let same = first.as_ref().filter(|first| is_exact && line.is_as(first));
            // Compares the times in the account instead of the time of day, because on a busy
            // machine the analyzer may print no new line for a while.
            let rested = same.map(|first| line.time().saturating_sub(first.time()));
            if rested.is_none() {
                first = is_exact.then(|| line.clone());
            }
            rested >= Some(REST)
        })
    }

    /// What was captured, according to the analyzer's files or to all tcpdumps. Waits until the
    /// tcpdumps have as many packets as the nodes captured according to `line`.
    pub(crate) fn truth(&self, line: &Line) -> Result<Truth> {
        let _beside_others = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        if self.ships {
            return Truth::of(self.sent, files::numbers(&self.records())?);
        }
        let (captured, _) = line.span("captured")?;
        let captured = usize::try_from(captured)?;
        let count = || self.readers.iter().map(Reader::count).sum::<usize>();
        let all = await_for("tcpdump's packets", PATIENCE, || {
            thread::sleep(LOOK);
            Ok((count() >= captured).then_some(()))
        });
        all.with_context(|| format!("tcpdump has {} of {captured}", count()))?;
        Truth::of(self.sent, self.numbers())
    }

    /// The numbers of the packets that all tcpdumps have captured so far.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.readers.iter().flat_map(Reader::numbers).collect()
    }

    /// What was captured according to the files of an analyzer that was killed while packets came.
    pub(crate) fn truth_so_far(&self) -> Result<Truth> {
        let numbers = files::numbers(&self.records())?;
        let offered = numbers.iter().max().map_or(0, |last| last + 1);
        Truth::of(offered, numbers)
    }

    /// The directory with the analyzer's files.
    pub(crate) fn records(&self) -> PathBuf {
        self.scratch.file("records")
    }

    /// The pcap file with everything that tcpdump has written for a device of a node.
    pub(crate) fn kept(&self, node: usize, device: &str) -> PathBuf {
        self.scratch.file(&format!("{}-{device}.pcap", id(node)))
    }

    /// The messages of all programs.
    pub(crate) fn output(&self) -> String {
        let agents = (0..self.agents.len()).map(|node| format!("agent{node}"));
        let coordinators = (0..self.coordinators.len()).map(|it| format!("coordinator{it}"));
        let others = ["analyzer", "analyzer1", "operator"].map(str::to_owned);
        let said = agents.chain(coordinators).chain(others).map(|name| {
            let path = self.scratch.file(&format!("{name}.log"));
            let text = fs::read_to_string(path).unwrap_or_default();
            format!("{name}:\n{text}")
        });
        said.collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(sender) = self.sender.take() {
            let _ = sender.stop();
        }
        self.readers.clear();
        let agents = self.agents.iter_mut().flatten();
        // `end` fails if the process has already ended, which is no error here.
        for child in agents
            .chain(&mut self.coordinators)
            .chain(&mut self.analyzer)
        {
            let _ = end(child);
        }
        for node in 0..self.mirror.count() {
            let devices = self.devices.join(",");
            let words = ["node", "-i", &devices, "--detach"];
            if let Ok(mut command) = self.program("detach", &words) {
                let _ = self.mirror.on_node(node, || Ok(command.status()?));
            }
        }
    }
}

/// Kills a process.
fn end(child: &mut Child) -> Result<()> {
    child.kill()?;
    child.wait()?;
    Ok(())
}

/// A node's id.
pub(crate) fn id(node: usize) -> String {
    format!("{:08x}", node + 1)
}

/// The seconds in an environment variable, or else the default.
pub(crate) fn seconds(variable: &str, default: u64) -> Duration {
    let set = std::env::var(variable).ok().and_then(|it| it.parse().ok());
    Duration::from_secs(set.unwrap_or(default))
}
