//! The demo of a capture cluster: nodes on this machine join, are drained and die while packets
//! come, and every packet is accounted for.
#![forbid(unsafe_code)]

mod traffic;
mod loss_account;
mod stage;

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fanpcap_cluster::NodeId;
use fanpcap_linux::process;
use fanpcap_linux::wait::stop;
use fanpcap_terminal::streams;
use fanpcap_testkit::await_for::await_for;

use loss_account::{LossAccount, Truth, now_ns};
use stage::{PATIENCE, Stage, id};
use traffic::{RATE, Traffic};

fn main() -> ExitCode {
    streams::ended(run())
}

fn run() -> Result<ExitCode> {
    ensure!(
        process::effective_user() == 0,
        "the demo makes network namespaces: run it as root"
    );
    stop::on_signals().context("catching signals")?;
    // The demo has a thread of its own, so that only this thread moves to another network
    // namespace.
    let shown = thread::scope(|scope| scope.spawn(show).join());
    shown.expect("the demo does not panic")?;
    Ok(ExitCode::SUCCESS)
}

fn show() -> Result<()> {
    tell(&format!(
        "Machines in network namespaces behind a mirror port: each sees all packets, {RATE} a\n\
         second. On each, 'fanpcap node' drops other nodes' packets; tcpdump captures the rest.\n\
         An etcd of three members, and two coordinators."
    ))?;
    let (stage, reports) = Stage::new()?;
    let mut story = Story {
        account: LossAccount::open(reports)?,
        stage,
        next: 0,
        dead: None,
    };
    story.begin()?;
    story.phase("2. A fourth node joins.", Story::join)?;
    story.phase("3. Node 1 is drained.", Story::drain)?;
    story.phase("4. etcd's leader is killed.", Story::kill_etcd)?;
    story.phase(
        "5. The active coordinator is killed.",
        Story::kill_coordinator,
    )?;
    story.phase(
        "6. Node 2 is killed, with all that runs on it.",
        Story::kill_node,
    )?;
    tell("\nEvery packet was captured once, or is counted.")
}

/// The running demo.
struct Story {
    account: LossAccount,
    stage: Stage,
    /// The number of the next packet.
    next: u64,
    /// A node that has died, with the time of its death; `None` once its end is recorded in the
    /// account.
    dead: Option<(usize, u64)>,
}

impl Story {
    fn begin(&mut self) -> Result<()> {
        self.stage.start_coordinator()?;
        self.stage.start_coordinator()?;
        for _ in 0..3 {
            self.stage.add_node()?;
        }
        for node in 0..3 {
            self.stage.read(node)?;
        }
        self.stage.await_owners(&self.stage.living())?;
        self.account.select(self.stage.selection()?);
        self.phase("1. Three nodes, at rest.", |_| Ok(String::new()))
    }

    fn join(&mut self) -> Result<String> {
        let node = self.stage.add_node()?;
        self.stage.read(node)?;
        self.await_owners(&[])?;
        Ok(format!("node {} has its share", id(node)))
    }

    fn drain(&mut self) -> Result<String> {
        self.stage.drain(id(0))?;
        self.await_owners(&[id(0)])?;
        Ok(format!("node {} has no buckets any more", id(0)))
    }

    fn kill_etcd(&mut self) -> Result<String> {
        let leader = self.stage.etcd.leader()?;
        let begun = Instant::now();
        self.stage.etcd.kill(leader)?;
        let others: Vec<usize> = (0..3).filter(|member| *member != leader).collect();
        self.stage.etcd.await_leader_of(&others)?;
        let seconds = begun.elapsed().as_secs_f64();
        Ok(format!(
            "etcd serves again after {seconds:.1} s; no node changed anything"
        ))
    }

    fn kill_coordinator(&mut self) -> Result<String> {
        let begun = Instant::now();
        let dead = self.stage.kill_coordinator()?;
        let next = await_for("the standby to lead", PATIENCE, || {
            Ok(self.stage.leader()?.filter(|name| *name != dead))
        })?;
        let seconds = begun.elapsed().as_secs_f64();
        Ok(format!("coordinator {next} leads after {seconds:.1} s"))
    }

    fn kill_node(&mut self) -> Result<String> {
        let begun = Instant::now();
        self.stage.kill_node(1)?;
        self.dead = Some((1, now_ns()?));
        self.await_owners(&[id(0)])?;
        let seconds = begun.elapsed().as_secs_f64();
        Ok(format!("other nodes have its packets after {seconds:.1} s"))
    }

    /// The living nodes that are not drained.
    fn owners(&self, drained: &[NodeId]) -> Vec<NodeId> {
        let living = self.stage.living().into_iter();
        living.filter(|node| !drained.contains(node)).collect()
    }

    fn await_owners(&self, drained: &[NodeId]) -> Result<()> {
        self.stage.await_owners(&self.owners(drained))
    }

    /// Runs an event while packets come, and prints the counts of these packets.
    fn phase(&mut self, title: &str, event: impl Fn(&mut Self) -> Result<String>) -> Result<()> {
        tell(&format!("\n{title}"))?;
        let first = self.next;
        let traffic = Traffic::start(first);
        pause(BEFORE)?;
        let happened = event(self);
        let paused = pause(BEFORE);
        self.next = traffic.stop()?;
        let happened = happened?;
        paused?;
        if !happened.is_empty() {
            tell(&format!("   {happened}"))?;
        }
        self.account(first)
    }

    /// Prints how many of the packets from number `first` on were captured. Fails if the nodes'
    /// files contradict the counts that the nodes report.
    fn account(&mut self, first: u64) -> Result<()> {
        let files = self.stage.captured()?;
        if let Some((node, at)) = self.dead.take() {
            // The account needs the dead node's last reports before it records the node's end.
            self.account.take(at)?;
            self.account.end_node(id(node), at, &files[node]);
        }
        self.await_reports()?;
        let lost = self.account.lost(&files);
        let phase = Truth::of(first..self.next, &files);
        let all = Truth::of(0..self.next, &files);
        let unaccounted = all.unaccounted(lost);
        tell(&format!(
            "   offered {}, captured once {}, doubled {}, missed {}",
            phase.offered, phase.once, phase.doubled, phase.missed,
        ))?;
        let told = match lost.is_exact() {
            true => lost.least.to_string(),
            false => format!("{} to {}", lost.least, lost.most),
        };
        tell(&format!(
            "   lost so far, by the nodes' counts: {told}; unaccounted {unaccounted}"
        ))?;
        ensure!(
            unaccounted == 0,
            "{} packets were missed in total, but the nodes' counts say that {told} were lost",
            all.missed
        );
        Ok(())
    }

    /// Waits until all living nodes have sent two reports since the last packet. If a node's two
    /// reports are equal, no packet came between them, so its counts are complete.
    fn await_reports(&mut self) -> Result<()> {
        let since = now_ns()?;
        let living = self.stage.living();
        let mut reports: Vec<NodeId> = Vec::new();
        await_for("the nodes' reports", PATIENCE, || {
            reports.extend(self.account.take(since)?);
            let of = |node: &NodeId| reports.iter().filter(|it| *it == node).count();
            Ok(living.iter().all(|node| of(node) >= 2).then_some(()))
        })
    }
}

/// How long packets come before an event, and how long after it.
const BEFORE: Duration = Duration::from_millis(1500);

fn pause(time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        ensure!(!stop::is_requested(), "told to stop");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn tell(text: &str) -> Result<()> {
    streams::print(&format!("{text}\n")).map(drop)
}
