//! Decides which CPUs receive, and which are left to applications.

use super::{Refusal, Wishes};
use crate::facts::Facts;
use crate::knob::{Knob, Setting};
use crate::machine::Cpu;
use fanpcap_linux::process::cpu;

/// The CPUs of the device's node: those that may receive, and those for applications.
pub(super) struct Cores {
    /// CPUs that may receive, best first: one hardware thread of each core.
    receivers: Vec<Cpu>,
    /// CPUs for applications, best first.
    others: Vec<Cpu>,
    /// CPUs that receive for other devices.
    taken: Vec<Cpu>,
    /// The number of cores for the queues and applications of this device.
    cores: usize,
}

impl Cores {
    pub(super) fn of(facts: &Facts, notes: &mut Vec<String>) -> Option<Self> {
        let allowed = facts
            .cpus
            .iter()
            .filter(|it| facts.allowed.contains(&it.number));
        let allowed: Vec<Cpu> = allowed.copied().collect();
        let local = on_node(&allowed, facts.node, notes);
        let (isolated, plain): (Vec<Cpu>, Vec<Cpu>) =
            local.into_iter().partition(|it| it.is_isolated);
        if !isolated.is_empty() && !plain.is_empty() {
            let numbers: Vec<usize> = isolated.iter().map(|it| it.number).collect();
            let list = cpu::list_text(&numbers);
            notes.push(format!(
                "CPUs {list} are isolated: they are left to applications"
            ));
        }
        let (plain, isolated) = if plain.is_empty() {
            (isolated, plain)
        } else {
            (plain, isolated)
        };
        let (mut firsts, siblings) = threads(&plain);
        let taken = pick(&plain, |it| facts.taken.contains(&it.number));
        notes.extend(told(&taken));
        let is_free = |it: &Cpu| !taken.iter().any(|taken| taken.core == it.core);
        let free = match pick(&firsts, is_free).len() {
            0 => firsts.len(),
            some => some,
        };
        let cores = free + threads(&isolated).0.len();
        let mut others = isolated;
        if let [only] = firsts.as_slice() {
            // There is only one core, with two hardware threads: one of them receives.
            if let Some(sibling) = siblings.first().filter(|_| others.is_empty()) {
                let (receiver, other) = match taken.contains(sibling) && !taken.contains(only) {
                    false => (*sibling, *only),
                    true => (*only, *sibling),
                };
                return Some(Self {
                    receivers: vec![receiver],
                    others: vec![other],
                    taken,
                    cores,
                });
            }
        }
        // The kernel itself uses CPU 0, so CPU 0 is the last choice for receiving and for
        // applications.
        firsts.sort_by_key(|it| (it.number == 0, it.number));
        others.extend(firsts.iter().chain(&siblings));
        if firsts.iter().any(is_free) {
            firsts.retain(is_free);
        }
        (!firsts.is_empty()).then_some(Self {
            receivers: firsts,
            others,
            taken,
            cores,
        })
    }

    /// The number of queues that should receive: as few as are fast enough, on at most half of the
    /// cores. Queues that an earlier plan gave the device stay, as the user may have asked for
    /// them. If threads poll short queues on a machine with two cores, the queues get both cores.
    pub(super) fn queues(
        &mut self,
        facts: &Facts,
        wishes: Wishes,
        notes: &mut Vec<String>,
    ) -> Result<u32, Refusal> {
        let most = facts.channels.map_or(0, |it| it.most[3].max(it.most[0]));
        let most = most.max(facts.rx_queues());
        if let Some(asked) = wishes.queues {
            return match (1..=most).contains(&asked) {
                true => Ok(asked),
                false => Err(Refusal::TooMany { asked, most }),
            };
        }
        let most_receivers = pick(&self.receivers, |it| it.number != 0).len().max(1);
        let half = (self.cores / 2).clamp(1, most_receivers);
        if is_short(facts, wishes) {
            let queues = facts.rx_queues();
            notes.extend((queues > 1).then(|| {
                format!(
                    "all {queues} queues stay: each holds only 256 frames, and one queue alone \
                     captured less in 'fanpcap bench placement-links' with two CPUs"
                )
            }));
            // All queues share half of the cores, or both of two cores. In measurements, a polling
            // thread needed 30 times the CPU time of a reader, and captured the most packets when
            // it had a CPU to itself.
            let half = if self.cores == 2 { 2 } else { half };
            self.receivers.truncate(half);
            return Ok(queues);
        }
        let half = u32::try_from(half).unwrap_or(u32::MAX).min(most);
        let now = facts.rx_queues();
        let queues = match facts.missed {
            0 => now.min(half),
            _ => half,
        };
        if facts.has_planned_channels && now >= queues {
            return Ok(now);
        }
        let entries = facts
            .value(Setting::Table)
            .map_or(0, |it| it.split(',').count());
        if queues > 0 && entries % queues as usize != 0 {
            let power = 1 << queues.ilog2();
            notes.push(format!(
                "{power} queues instead of {queues}: the indirection table has {entries} entries, \
                 which {queues} queues could not share evenly"
            ));
            return Ok(power);
        }
        Ok(queues.max(1))
    }

    /// The CPU of each queue.
    pub(super) fn receive(&self, queues: u32) -> Vec<usize> {
        let receivers = self.receivers.iter().cycle();
        receivers
            .take(queues as usize)
            .map(|it| it.number)
            .collect()
    }

    /// The CPUs that do not receive. If all CPUs receive, returns the CPUs of the queues.
    pub(super) fn applications(&self, queues: u32, notes: &mut Vec<String>) -> Vec<usize> {
        let receive = self.receive(queues);
        let is_free = |it: &&Cpu| !receive.contains(&it.number);
        // CPUs that receive for other devices, and siblings of receiving CPUs, always come last.
        let is_beside = |it: &Cpu| {
            let busy = self.receivers.iter().take(queues as usize);
            busy.chain(&self.taken).any(|other| other.core == it.core)
        };
        let mut free: Vec<&Cpu> = self.others.iter().filter(is_free).collect();
        free.sort_by_key(|it| is_beside(it));
        let apart = free.iter().filter(|it| !is_beside(it)).count();
        if apart > 0 {
            free.truncate(apart);
        }
        if free.is_empty() {
            notes.push(
                "all CPUs receive: applications share them, and a slow application costs packets"
                    .to_owned(),
            );
            return receive;
        }
        free.iter().map(|it| it.number).collect()
    }
}

/// The CPUs of a node, or all CPUs if no CPU of the node may be used.
fn on_node(allowed: &[Cpu], node: Option<usize>, notes: &mut Vec<String>) -> Vec<Cpu> {
    let local = allowed
        .iter()
        .filter(|it| node.is_none_or(|node| it.node == node));
    let local: Vec<Cpu> = local.copied().collect();
    match (local.is_empty(), node) {
        (true, Some(node)) => {
            notes.push(format!(
                "this process may use no CPU of node {node}, which the device is on: packets cross \
                 to another node"
            ));
            allowed.to_vec()
        }
        _ => local,
    }
}

/// Whether threads will poll short queues that can't be lengthened. A veth device has such queues
/// (`VETH_RING_SIZE`).
fn is_short(facts: &Facts, wishes: Wishes) -> bool {
    let threaded = facts.value(Knob::Threaded);
    let is_threaded = threaded == Some("on") || wishes.threads && threaded.is_some();
    facts.driver == "veth" && is_threaded
}

/// A note that explains why CPUs that receive for other devices are avoided.
fn told(taken: &[Cpu]) -> Option<String> {
    let numbers: Vec<usize> = taken.iter().map(|it| it.number).collect();
    (!numbers.is_empty()).then(|| {
        format!(
            "CPUs {} receive for other devices: one CPU for the queues of two devices captured less \
             in 'fanpcap bench placement-links' with two CPUs",
            cpu::list_text(&numbers)
        )
    })
}

fn pick(cpus: &[Cpu], is_so: impl Fn(&Cpu) -> bool) -> Vec<Cpu> {
    cpus.iter().filter(|it| is_so(it)).copied().collect()
}

/// One hardware thread of each core, and the remaining hardware threads.
fn threads(cpus: &[Cpu]) -> (Vec<Cpu>, Vec<Cpu>) {
    let is_first = |at: usize| cpus[..at].iter().all(|it| it.core != cpus[at].core);
    let all = (0..cpus.len()).partition::<Vec<usize>, _>(|&at| is_first(at));
    let pick = |places: Vec<usize>| places.into_iter().map(|at| cpus[at]).collect();
    (pick(all.0), pick(all.1))
}
