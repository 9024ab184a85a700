//! Programs without CAP_BPF, such as dumpcap and tshark, in groups on the XDP engine: the founder
//! loads the BPF programs and makes the pools.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_group::roster::{self, RosterEntry};
use fanpcap_linux::bpf::ObjectId;
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::traffic::{self, Flow, Frame};
use fanpcap_testkit::{Capture, Injector, Scratch, member, needs};
use serde_json::Value;

use crate::captures::on_wire;
use crate::founded::{Ending, OWN, WITHOUT_BPF, commands, serve, tcpdump};
use crate::{FAR, GROUP, Running};

const FRAMES: u64 = 2000;

/// CAP_BPF and CAP_SYS_ADMIN in `CapEff` of /proc/PID/status.
const BPF: u64 = 1 << 39;
const SYS_ADMIN: u64 = 1 << 21;

/// Starts two copies on the engine, and waits until both are members.
pub(crate) fn start(options: &[&str], command: &[&str]) -> Result<Running> {
    let group = GROUP.to_string();
    let all = [
        "-n", "2", "--group", &group, "--cpus", "none", "--device", FAR,
    ];
    let summary = ["--json", "summary.json", "--"];
    let line = [&all[..], options, &summary, command].concat();
    let running = Running::start_by(&["env", "PCAP_DRIVER=xdp"], &line, None)?;
    running.wait_until_says(&format!("on {FAR}: 2 copies"), 1)?;
    Ok(running)
}

fn members() -> Result<Vec<RosterEntry>> {
    let mut seen = roster::entries()?;
    seen.retain(|it| it.is_in(GROUP) && it.page.is_some());
    Ok(seen)
}

fn pids(members: &[RosterEntry]) -> Vec<u32> {
    let pages = members.iter().filter_map(|it| it.page.as_ref());
    pages.map(|page| page.pid).collect()
}

fn ensure_unprivileged_on_xdp(members: &[RosterEntry]) -> Result<()> {
    for member in members {
        ensure!(member.is_on_engine(), "{member:?}");
        ensure!(
            member.page.as_ref().is_some_and(|it| it.ring_bytes > 0),
            "{member:?}"
        );
    }
    for pid in pids(members) {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let held = status.lines().find_map(|it| it.strip_prefix("CapEff:"));
        let held = u64::from_str_radix(held.context("CapEff")?.trim(), 16)?;
        ensure!(held & (BPF | SYS_ADMIN) == 0, "{pid} has {held:x}");
    }
    Ok(())
}

/// The kernel's ids of the pools of which a process has descriptors. A pool's entries are blocks of
/// one of these sizes.
fn pools(pid: u32) -> BTreeSet<u32> {
    let sizes = [1 << 18, 1 << 19, 1 << 20];
    let pools = sizes.map(|size| ObjectId::maps_of(pid, size));
    pools.into_iter().flat_map(BTreeMap::into_keys).collect()
}

/// Frames of the same flows, with numbers that no other call has used.
struct Numbered {
    flows: Vec<Flow>,
    next: u64,
}

impl Numbered {
    fn new() -> Self {
        Self {
            flows: traffic::flows(7, 50),
            next: 0,
        }
    }

    fn send(&mut self, injector: &Injector) -> Result<Vec<Frame>> {
        let frames = traffic::frames(7, &self.flows, self.next..self.next + FRAMES)?;
        injector.send_all(&frames)?;
        self.next += FRAMES;
        Ok(frames)
    }
}

/// The copies that captured each number.
fn captured(running: &Running) -> Result<BTreeMap<u64, Vec<usize>>> {
    let mut by_number: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for copy in 0..2 {
        let capture = Capture::read_so_far(&running.scratch.file(&format!("{copy}.pcap")));
        for packet in capture.packets {
            let number = packet.sequence.context("a foreign packet")?;
            by_number.entry(number).or_default().push(copy);
        }
    }
    Ok(by_number)
}

/// Checks that each frame was captured once, and all frames of a flow by one copy. Returns the copy
/// of each flow, in the order of `flows`.
fn ensure_whole(running: &Running, numbered: &Numbered, frames: &[Frame]) -> Result<Vec<usize>> {
    let by_number = captured(running)?;
    let mut owners = vec![None; numbered.flows.len()];
    for frame in frames {
        let copies = by_number.get(&frame.sequence).map(Vec::as_slice);
        let Some([copy]) = copies else {
            anyhow::bail!("frame {} was captured by {copies:?}", frame.sequence);
        };
        let place = numbered.flows.iter().position(|it| *it == frame.flow);
        let owner = owners[place.context("a flow")?].get_or_insert(*copy);
        ensure!(owner == copy, "{:?} is split", frame.flow);
    }
    let owners = owners.into_iter().collect::<Option<_>>();
    owners.context("a flow without frames")
}

/// Waits until the copies have written all frames that were sent.
fn wait_for(running: &Running, numbered: &Numbered) -> Result<()> {
    running.wait_for_packets(&["0.pcap", "1.pcap"], usize::try_from(numbered.next)?)
}

/// Sends frames until both copies capture some: a copy gets its share when it reads its handle.
fn until_both_capture(
    running: &Running,
    numbered: &mut Numbered,
    injector: &Injector,
) -> Result<()> {
    await_for("shares of both", LIMIT, || {
        numbered.send(injector)?;
        wait_for(running, numbered)?;
        let all = captured(running)?;
        let has = |copy| all.values().any(|copies| copies.contains(&copy));
        Ok((has(0) && has(1)).then_some(()))
    })
    .with_context(|| running.said())
}

fn of(summary: &Value, name: &str) -> u64 {
    summary["total"][name].as_u64().unwrap_or(u64::MAX)
}

/// A copy is killed with packets in its pool. The other copy reads them, gets the killed one's
/// flows, and keeps its own.
#[test]
#[ignore = "needs root: eBPF, packet sockets in a namespace"]
fn programs_without_cap_bpf_are_members_on_xdp() {
    if !needs::programs(&["dumpcap", "tshark"]) {
        return;
    }
    for command in commands() {
        on_wire(|injector| {
            let running = start(&[], &command)?;
            let mut numbered = Numbered::new();
            until_both_capture(&running, &mut numbered, injector)?;
            let members = members()?;
            ensure!(members.len() == 2, "{members:?}");
            ensure_unprivileged_on_xdp(&members)?;
            let frames = numbered.send(injector)?;
            wait_for(&running, &numbered)?;
            let owners = ensure_whole(&running, &numbered, &frames)?;
            let gone = pids(&members)[1];
            member::signal(gone, "STOP")?;
            numbered.send(injector)?;
            member::signal(gone, "KILL")?;
            running.wait_until_says("the other copies continue", 1)?;
            await_for("all packets", LIMIT, || {
                Ok((captured(&running)?.len() as u64 == numbered.next).then_some(()))
            })
            .with_context(|| running.said())?;
            let frames = numbered.send(injector)?;
            wait_for(&running, &numbered)?;
            let after = ensure_whole(&running, &numbered, &frames)?;
            let left = after.first().copied();
            ensure!(after.iter().all(|it| Some(*it) == left), "{after:?}");
            let kept = owners.iter().filter(|it| Some(**it) == left).count();
            ensure!(kept > 0 && kept < owners.len(), "{owners:?}");
            running.signal("TERM")?;
            let ended = running.wait()?;
            let summary = ended.summary();
            let taken = of(&summary, "taken") + of(&summary, "inherited");
            ensure!(taken == numbered.next, "{}: {summary:#}", numbered.next);
            ensure!(of(&summary, "inherited") > 0, "{summary:#}");
            ensure!(of(&summary, "uncounted_at_most") == 0, "{summary:#}");
            Ok(())
        })
        .with_context(|| command.join(" "))
        .unwrap();
    }
}

/// Both copies are killed at once, with packets in their pools. The founder keeps the group, so the
/// restarted copies take the pools over. Each copy has a pool that no copy had before.
#[test]
#[ignore = "needs root: eBPF, packet sockets in a namespace"]
fn restarted_copies_take_over_what_all_killed_copies_left_on_xdp() {
    if !needs::programs(&["dumpcap"]) {
        return;
    }
    on_wire(|injector| {
        let dumpcap = ["dumpcap", "-q", "-P", "-i", FAR, "-w", "%i.pcap"];
        let running = start(&["--restart"], &dumpcap)?;
        let mut numbered = Numbered::new();
        until_both_capture(&running, &mut numbered, injector)?;
        let killed = pids(&members()?);
        let former: BTreeSet<u32> = killed.iter().flat_map(|pid| pools(*pid)).collect();
        ensure!(former.len() == 2, "{former:?}");
        for pid in &killed {
            member::signal(*pid, "STOP")?;
        }
        numbered.send(injector)?;
        for pid in &killed {
            member::signal(*pid, "KILL")?;
        }
        await_for("other members", LIMIT, || {
            let members = members()?;
            let is_new = |pid: &u32| !killed.contains(pid);
            let all = pids(&members).iter().filter(|it| is_new(it)).count();
            Ok((all == 2).then_some(members))
        })
        .and_then(|members| ensure_unprivileged_on_xdp(&members))
        .with_context(|| running.said())?;
        // The successors read what the killed copies left, before the files' last packets.
        await_for("what was left", LIMIT, || {
            numbered.send(injector)?;
            thread::sleep(Duration::from_millis(600));
            let all = captured(&running)?;
            let first = numbered.next - FRAMES;
            Ok((first..numbered.next)
                .all(|it| all.contains_key(&it))
                .then_some(()))
        })
        .with_context(|| running.said())?;
        let present = pids(&members()?).into_iter().flat_map(pools);
        let present: BTreeSet<u32> = present.collect();
        ensure!(
            present.len() == 2 && present.is_disjoint(&former),
            "{former:?}, {present:?}"
        );
        running.signal("TERM")?;
        let ended = running.wait()?;
        let summary = ended.summary();
        let taken = of(&summary, "taken") + of(&summary, "inherited");
        ensure!(taken == numbered.next, "{}: {summary:#}", numbered.next);
        ensure!(of(&summary, "inherited") > 0, "{summary:#}");
        Ok(())
    })
    .unwrap();
}

/// A newcomer finds the pool that the founder has made ahead, also while the founder is stopped.
/// The next newcomer is told.
#[test]
#[ignore = "needs root: eBPF, packet sockets in a namespace"]
fn a_newcomer_is_told_that_the_founder_makes_no_pool() {
    on_wire(|_| {
        let scratch = Scratch::new()?;
        let served = serve(&scratch, &["env", "PCAP_DRIVER=xdp", OWN], &[])?;
        let start = |number: u32, through: &[&str]| {
            let file = scratch.file(&format!("{number}.pcap"));
            let mut command = tcpdump(&file, &[through, &WITHOUT_BPF].concat())?;
            command.env("PCAP_DRIVER", "xdp");
            Ok::<_, anyhow::Error>(command)
        };
        let _first = Ending(start(0, &[])?.spawn()?);
        member::wait_for_members(GROUP, 1)?;
        // The founder makes a pool ahead within a tenth of a second.
        thread::sleep(Duration::from_secs(1));
        member::signal(served.0.id(), "STOP")?;
        let _second = Ending(start(1, &[])?.spawn()?);
        member::wait_for_members(GROUP, 2)?;
        let third = start(2, &["timeout", "20"])?.output()?;
        let said = String::from_utf8_lossy(&third.stderr).into_owned();
        let expected = format!("process {}, has made no rings for it", served.0.id());
        ensure!(said.contains(&expected), "{said}");
        member::signal(served.0.id(), "CONT")?;
        let _third = Ending(start(3, &[])?.spawn()?);
        member::wait_for_members(GROUP, 3)
    })
    .unwrap();
}

/// The founder makes the pools one after the other, while all newcomers wait.
#[test]
#[ignore = "needs root: eBPF, packet sockets in a namespace"]
fn newcomers_without_cap_bpf_that_come_at_once_are_all_members_on_xdp() {
    on_wire(|_| {
        let scratch = Scratch::new()?;
        let _served = serve(&scratch, &["env", "PCAP_DRIVER=xdp", OWN], &[])?;
        let start = |number: usize| {
            let file = scratch.file(&format!("{number}.pcap"));
            let mut command = tcpdump(&file, &WITHOUT_BPF)?;
            command.args(["-B", "4096"]).env("PCAP_DRIVER", "xdp");
            Ok(Ending(command.spawn()?))
        };
        let all = (0..12).map(start).collect::<Result<Vec<_>>>()?;
        member::wait_for_members(GROUP, all.len())?;
        let members = members()?;
        ensure!(members.len() == all.len(), "{members:?}");
        ensure_unprivileged_on_xdp(&members)
    })
    .unwrap();
}
