//! A measure of links whose queues are polled by threads (threaded NAPI). Compares the CPUs of
//! threads and readers.

use std::num::NonZeroU64;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use fanpcap_nic::apply;
use fanpcap_nic::device::Device;
use fanpcap_nic::facts::Facts;
use fanpcap_nic::journal::{Hold, Journal, Wish};
use fanpcap_nic::knob::{Knobs, Setting};
use fanpcap_nic::napi;
use fanpcap_nic::plan::{self, Wishes};
use fanpcap_nic::settings::Settings;
use fanpcap_testbed::Member;
use serde::Deserialize;

use crate::bench::Bench;
use crate::column::Layout;
use crate::cores::{Cores, Occupant};
use crate::cpu;
use crate::figure::{Figure, Sample};
use crate::generator::frame::SHORTEST;
use crate::generator::{Load, Sent, Way};
use crate::libraries::Side;
use crate::pause::pause;
use crate::reader::{self, ReaderReport};
use crate::refusal::{Counters, Refusal, on_time};
use crate::trial::{GRACE, SETTLE, sample};
use crate::wire::{Arrived, Ends, QUEUES, Wire};

/// Links with a queue for each CPU of the bench. A generator on each CPU feeds its queue of each
/// link.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Polled {
    /// Frames per second offered on all links together.
    pps: u64,
}

/// The devices of each link.
const ENDS: [Ends; 2] = [["fpbnear1", "fpbfar1"], ["fpbnear2", "fpbfar2"]];

/// The group of each link's readers. The CPU that polls a queue selects the reader of its packets.
const GROUPS: [u16; 2] = [46, 47];
const MODE: &str = "cpu";

impl Polled {
    pub(super) fn run(&self, bench: &Bench, layouts: &[Layout]) -> Result<Result<Sample, Refusal>> {
        let first = Wire::named(ENDS[0])?;
        let mut wires = vec![first];
        for ends in &ENDS[1..layouts.len()] {
            let other = wires[0].beside(*ends)?;
            wires.push(other);
        }
        let ran = self.run_on(bench, &wires, layouts);
        for wire in &wires {
            wire.remove()?;
        }
        ran
    }

    fn run_on(
        &self,
        bench: &Bench,
        wires: &[Wire],
        layouts: &[Layout],
    ) -> Result<Result<Sample, Refusal>> {
        let mut links = Vec::new();
        for ((wire, group), layout) in wires.iter().zip(GROUPS).zip(layouts) {
            links.push(Link::set_up(bench, (wire, group), layout)?);
        }
        let ran = self.flood(bench, &links);
        let ended: Result<Vec<_>> = links.into_iter().map(|link| link.end(bench)).collect();
        let (run, told) = (ran?, ended?);
        Ok(run.sample(bench, &told))
    }

    /// Sends on all links at once.
    fn flood(&self, bench: &Bench, links: &[Link<'_>]) -> Result<Run> {
        pause(SETTLE)?;
        let cpus = cpus(bench);
        let before = links
            .iter()
            .map(|link| link.wire.arrived())
            .collect::<Result<Vec<_>>>()?;
        let occupants: Vec<Occupant> = links.iter().flat_map(Link::occupants).collect();
        let polled = polling_time(links)?;
        let cores = Cores::watch(bench, &occupants)?;
        let pps = self.pps / (links.len() * QUEUES) as u64;
        let load = Load::Frames {
            len: SHORTEST,
            pps: NonZeroU64::new(pps),
            way: Way::LiveFrames,
            time: bench.time,
        };
        let places = links
            .iter()
            .flat_map(|link| cpus.map(|cpu| (link.wire, cpu)));
        let sent = bench.generate_together(places, load)?;
        let undisturbed = cores.undisturbed_by(&sent, true)?;
        bench.stray()?;
        pause(GRACE)?;
        let after = links
            .iter()
            .map(|link| link.wire.arrived())
            .collect::<Result<Vec<_>>>()?;
        let arrived = after.iter().zip(before);
        Ok(Run {
            sent: sent.into_iter().map(|(_, sent)| sent).collect(),
            pps,
            arrived: arrived.map(|(after, before)| after.since(before)).collect(),
            polling: polling_time(links)?.saturating_sub(polled),
            undisturbed,
        })
    }
}

fn cpus(bench: &Bench) -> [usize; QUEUES] {
    [bench.generator_cpu, bench.reader_cpu]
}

/// CPU time of all polling threads.
fn polling_time(links: &[Link<'_>]) -> Result<Duration> {
    let threads = links.iter().flat_map(|link| &link.threads);
    threads.map(|it| cpu::of_all_threads(it.pid)).sum()
}

/// A link with its polling threads and its readers.
struct Link<'a> {
    wire: &'a Wire,
    group: u16,
    threads: Vec<Occupant>,
    readers: Vec<(Member, Occupant)>,
    /// The changes that `tune` has made.
    tuned: Option<Hold>,
}

impl<'a> Link<'a> {
    fn set_up(bench: &Bench, (wire, group): (&'a Wire, u16), layout: &Layout) -> Result<Self> {
        let cpus = cpus(bench);
        let mut link = Self {
            wire,
            group,
            threads: Vec::new(),
            readers: Vec::new(),
            tuned: None,
        };
        let (mut config, mut readers) = (String::new(), Vec::new());
        match layout {
            Layout::Unplaced(count) => {
                wire.at_far(|| {
                    let device = with_gro(wire)?;
                    napi::set_threaded(&device, true).map_err(|error| anyhow!("{error}"))
                })?;
                readers = vec![None; *count];
            }
            Layout::Placed {
                threads,
                readers: places,
            } => {
                wire.at_far(|| with_gro(wire))?;
                for (of, on) in cpus.iter().zip(threads) {
                    let queue = of % QUEUES;
                    config += &format!("napi@{}.{queue} = {}\n", wire.far(), cpus[*on]);
                }
                readers.extend(places.iter().map(|place| Some(cpus[*place])));
            }
            Layout::Tuned => {
                let (hold, cpu) = wire.at_far(|| tune(wire, &cpus))?;
                link.tuned = Some(hold);
                readers.push(Some(cpu));
            }
        }
        link.read(bench, readers, &config)?;
        link.threads = wire.at_far(|| threads(wire))?;
        Ok(link)
    }

    /// Starts the readers. In a group of the kernel's mode `cpu`, the members are numbered as they
    /// join, and the member with a CPU's number gets that CPU's packets.
    fn read(&mut self, bench: &Bench, mut places: Vec<Option<usize>>, config: &str) -> Result<()> {
        places.sort_by_key(|cpu| cpu.map(|cpu| cpu % QUEUES));
        let group = (places.len() > 1).then_some((self.group, MODE));
        for cpu in places {
            let member = bench.read_on(self.wire, (cpu, group), config)?;
            let pid = member.pid();
            self.readers.push((member, Occupant { pid, cpu }));
        }
        Ok(())
    }

    fn occupants(&self) -> impl Iterator<Item = Occupant> {
        let readers = self.readers.iter().map(|(_, occupant)| occupant);
        readers.chain(&self.threads).copied()
    }

    /// Ends the readers, and restores the settings that `tune` has changed.
    fn end(self, bench: &Bench) -> Result<Vec<ReaderReport>> {
        let mut told = Vec::new();
        for (member, _) in &self.readers {
            member.signal("TERM")?;
        }
        for (member, _) in self.readers {
            told.push(reader::told(
                &member.wait()?,
                Side::Ours,
                bench.libraries(),
            )?);
        }
        if let Some(hold) = self.tuned {
            self.wire.at_far(|| {
                let device = Device::open(self.wire.far())?;
                let mut journal = Journal::open(&device).map_err(|error| anyhow!("{error}"))?;
                journal.release(&Settings(&device), hold);
                Ok(())
            })?;
        }
        Ok(told)
    }
}

/// Turns GRO on at the far device, and returns the device. With GRO a veth has NAPI instances, and
/// takes live frames.
fn with_gro(wire: &Wire) -> Result<Device> {
    let device = Device::open(wire.far())?;
    let gro = Setting::Feature("rx-gro".to_owned()).into();
    let set = Settings(&device).write(&gro, "on");
    set.map_err(|error| anyhow!("GRO on {}: {error}", wire.far()))?;
    Ok(device)
}

/// The threads that poll the far device.
fn threads(wire: &Wire) -> Result<Vec<Occupant>> {
    let device = Device::open(wire.far())?;
    let found = napi::threads(&device).map_err(|error| anyhow!("{error}"))?;
    ensure!(!found.is_empty(), "no thread polls {}", wire.far());
    let mut pids: Vec<u32> = found.into_iter().map(|(_, pid)| pid).collect();
    pids.sort_unstable();
    pids.dedup();
    let occupant = |pid| {
        let cpus = fanpcap_linux::process::cpu::affinity(pid).context("a polling thread")?;
        let cpu = match cpus.as_slice() {
            [cpu] => Some(*cpu),
            _ => None,
        };
        Ok(Occupant { pid, cpu })
    };
    pids.into_iter().map(occupant).collect()
}

/// Makes the changes that `fanpcap tune DEV --threads` plans for these CPUs. Returns the CPU for
/// the application.
fn tune(wire: &Wire, cpus: &[usize]) -> Result<(Hold, usize)> {
    let device = Device::open(wire.far())?;
    let mut facts = Facts::of(&device);
    facts.allowed.retain(|cpu| cpus.contains(cpu));
    let wishes = Wishes {
        threads: true,
        ..Wishes::default()
    };
    let plan = plan::plan(&facts, wishes).map_err(|error| anyhow!("{error}"))?;
    let cpu = *plan.applications.first().context("no CPU to read on")?;
    let mut journal = Journal::open(&device).map_err(|error| anyhow!("{error}"))?;
    let hold = journal.hold().map_err(|error| anyhow!("{error}"))?;
    for tried in apply::apply(&device, &mut journal, Wish::While(&hold), &plan) {
        let what = || tried.step.text();
        tried
            .result
            .as_ref()
            .map_err(|error| anyhow!("{}: {error}", what()))?;
    }
    Ok((hold, cpu))
}

/// Allowed deviation from the rate. It is large, because polling threads and readers use the
/// generators' CPUs too.
const OFF_RATE: f64 = 0.1;

/// The results of a run in which generators sent on all links at the same time.
struct Run {
    /// What the generators have sent: for each link in turn, one generator on each CPU.
    sent: Vec<Sent>,
    /// The packets that each generator should send in a second.
    pps: u64,
    /// For each link, the frames received, and the frames for which the device had no room.
    arrived: Vec<Arrived>,
    polling: Duration,
    undisturbed: Result<(), Refusal>,
}

impl Run {
    /// The figures of the run, or the reason why it does not count. `told` are the reports of each
    /// link's readers.
    fn sample(self, bench: &Bench, told: &[Vec<ReaderReport>]) -> Result<Sample, Refusal> {
        let links = self.sent.chunks(QUEUES).zip(&self.arrived).zip(told);
        let links: Vec<Counters> = links
            .map(|((sent, arrived), told)| counters(sent, *arrived, told))
            .collect();
        links.iter().try_for_each(Counters::agree)?;
        self.undisturbed?;
        let pps = self.pps as f64;
        for sent in &self.sent {
            bench.alone(on_time(sent.pps() / pps, OFF_RATE))?;
        }
        let together = Sent::together(&self.sent)?;
        let arrived = Arrived {
            received: links.iter().map(|link| link.arrived).sum(),
            dropped: links.iter().map(|link| link.lost).sum(),
        };
        let tally = told.iter().flatten().map(ReaderReport::tally).sum();
        let all = Counters::new(together.frames, arrived, tally);
        let cpu_ns = told.iter().flatten().map(|told| told.cpu_ns).sum();
        let mut figures = crate::trial::with_share(sample(&together, &all, cpu_ns), &all);
        let polling = self.polling.as_nanos() as f64 / all.delivered as f64;
        figures.insert(Figure::PollingNs, polling);
        let of_link = [Figure::FirstLinkPps, Figure::SecondLinkPps];
        for (figure, link) in of_link.into_iter().zip(&links) {
            figures.insert(figure, link.delivered as f64 / together.seconds());
        }
        Ok(figures)
    }
}

/// The counters of a link. A frame that was sent but not received counts as dropped by the device.
/// The device's own count of dropped frames may be too low if two CPUs send to one queue, but is
/// never too high.
fn counters(sent: &[Sent], counted: Arrived, told: &[ReaderReport]) -> Counters {
    let frames: u64 = sent.iter().map(|sent| sent.frames).sum();
    let arrived = Arrived {
        dropped: frames.saturating_sub(counted.received),
        ..counted
    };
    let taken = frames.saturating_sub(counted.dropped).min(arrived.received);
    let tally = told.iter().map(ReaderReport::tally).sum();
    Counters::new(taken, arrived, tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: Sent = Sent {
        frames: 500,
        begin: 0,
        nanoseconds: 1,
        cpu_ns: 0,
        process_cpu_ns: 0,
        reader_ns: None,
    };

    #[test]
    fn what_the_device_had_no_room_for_is_what_it_has_not_received() {
        let of = |(received, dropped)| {
            let counted = Arrived { received, dropped };
            counters(&[SENT, SENT], counted, &[])
        };
        assert_eq!((of((900, 100)).sent, of((900, 100)).lost), (900, 100));
        // The device's own count missed some frames.
        assert_eq!((of((900, 98)).sent, of((900, 98)).lost), (900, 100));
        // The device also counted frames that it has received.
        assert_eq!(of((900, 101)).sent, 899);
    }
}
