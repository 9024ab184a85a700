//! A measure of tshark, a real application with much work for each packet: one copy, and two copies
//! in a group.

use std::num::NonZeroU64;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_testbed::{Member, Program};

use crate::bench::Bench;
use crate::cores::{Cores, Occupant};
use crate::figure::{Figure, Sample};
use crate::generator::{Load, Sent};
use crate::libraries::Side;
use crate::outside;
use crate::pause::pause;
use crate::refusal::{Counters, OFF_RATE, Refusal, Tally, on_time};
use crate::trial::SETTLE;

/// Fields of a packet log: one line for each packet, with tabs.
const FIELDS: &str = "-e frame.number -e frame.time_epoch -e frame.len -e frame.protocols \
    -e eth.src -e eth.dst -e ip.src -e ip.dst -e ip.proto -e ip.id -e ip.ttl -e ip.len -e ip.dsfield \
    -e udp.srcport -e udp.dstport -e udp.length -e udp.stream -e udp.time_delta";
const LEN: usize = 508;
const GROUP: u16 = 45;
/// A rate that is higher than one copy can handle.
const FIRST_PPS: u64 = 200_000;
const FIRST_RUNS: u32 = 3;
/// Offered load, relative to the rate that one copy can handle. Both copies must be busy all the
/// time, but not the generator.
const LOAD: f64 = 2.2;
/// Run length, in lengths of a flood. Runs are long, so that the packets in the rings at the end
/// are a small part.
const LONGER: u32 = 4;
/// Time for the copies to read their rings and pipes.
const DRAIN: Duration = Duration::from_millis(500);

/// Runs one or two copies of tshark, as the column's key says. Each copy reads from a dumpcap,
/// which captures on our library and stops reading while tshark is behind.
pub(super) fn run(bench: &Bench, key: &str) -> Result<Result<Sample, Refusal>> {
    /// Packets per second that one copy handles; measured once.
    static ONE: OnceLock<f64> = OnceLock::new();
    let one = match ONE.get() {
        Some(one) => *one,
        None => match best_of_one(bench)? {
            Ok(one) => *ONE.get_or_init(|| one),
            Err(refusal) => return Ok(Err(refusal)),
        },
    };
    let pps = Duration::from_secs_f64(LOAD * one).as_secs();
    copies(bench, if key == "one" { 1 } else { 2 }, pps)
}

/// One copy: dumpcap, which captures, and tshark, which dissects.
#[derive(Debug)]
struct Copy {
    dumpcap: Member,
    tshark: Member,
    cpu: usize,
}

impl Copy {
    fn start(bench: &Bench, cpu: usize) -> Result<Self> {
        let fifo = bench.scratch.new_file("packets");
        let made = Command::new("mkfifo").arg(&fifo).status()?;
        ensure!(made.success(), "mkfifo {}: {made}", fifo.display());
        let shell = |script: &str, ready| {
            let program = outside::program(bench, Side::Ours, cpu, "sh", ready);
            program.args(["-c", script, "sh"]).arg(&fifo)
        };
        let read = format!("exec tshark -n -r - -T fields {FIELDS} <\"$1\"");
        // tshark waits for dumpcap at the pipe, so tshark is ready as soon as it runs.
        let tshark = shell(&read, "").start(&bench.scratch)?;
        let write = "exec dumpcap -q -P -i \"$2\" -w - >\"$1\"";
        let dumpcap: Program = shell(write, "File: -")
            .arg(bench.wire.far())
            .group(GROUP, "hash");
        let dumpcap = outside::start(bench, Some(Side::Ours), dumpcap)?;
        Ok(Self {
            dumpcap,
            tshark,
            cpu,
        })
    }

    fn occupants(&self) -> [Occupant; 2] {
        [&self.dumpcap, &self.tshark].map(|member| Occupant {
            pid: member.pid(),
            cpu: Some(self.cpu),
        })
    }

    /// The numbers of packets that the copy captured, lost and handled.
    fn finish(self) -> Result<Tally> {
        self.dumpcap.signal("INT")?;
        let captured = self.dumpcap.wait()?;
        let handled = self.tshark.wait()?;
        let (captured, lost) = of_dumpcap(&captured.said)?;
        Ok(Tally {
            received: captured + lost,
            dropped: lost,
            delivered: of_tshark(&handled.said)?,
        })
    }
}

/// The rate that one copy can handle: the highest rate of a few runs, because other processes can
/// only lower a rate. If this rate were too low, the load derived from it would not keep two copies
/// busy.
fn best_of_one(bench: &Bench) -> Result<Result<f64, Refusal>> {
    let mut best = 0.0_f64;
    for _ in 0..FIRST_RUNS {
        match copies(bench, 1, FIRST_PPS)? {
            Ok(sample) => best = best.max(sample[&Figure::HandledPps]),
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
    Ok(Ok(best))
}

/// One run of `copies` copies. The second copy shares its core with the generator.
fn copies(bench: &Bench, copies: usize, pps: u64) -> Result<Result<Sample, Refusal>> {
    bench.arranged(Side::Ours, bench.way, || run_on(bench, copies, pps))
}

fn run_on(bench: &Bench, copies: usize, pps: u64) -> Result<Result<Sample, Refusal>> {
    let before = bench.arrived()?;
    let cpus = [bench.reader_cpu, bench.generator_cpu];
    let started = cpus.iter().take(copies).map(|cpu| Copy::start(bench, *cpu));
    let started = started.collect::<Result<Vec<_>>>()?;
    pause(SETTLE)?;
    let occupants: Vec<_> = started.iter().flat_map(Copy::occupants).collect();
    let cores = Cores::watch(bench, &occupants)?;
    let sent = bench.generate(Load::Frames {
        len: LEN,
        pps: NonZeroU64::new(pps),
        way: bench.way,
        time: bench.time * LONGER,
    })?;
    let undisturbed = cores.undisturbed(&sent, true)?;
    bench.stray()?;
    pause(DRAIN)?;
    let arrived = bench.arrived()?.since(before);
    let tally = started.into_iter().map(Copy::finish).sum::<Result<_>>()?;
    let counters = Counters::new(sent.frames, arrived, tally);
    let alone = bench.alone(on_time(sent.pps() / pps as f64, OFF_RATE));
    let accepted = counters.agree().and(undisturbed).and(alone);
    Ok(accepted.map(|()| sample(&sent, &counters)))
}

fn sample(sent: &Sent, counters: &Counters) -> Sample {
    let handled = counters.delivered as f64;
    Sample::from([
        (Figure::Sent, counters.sent as f64),
        (Figure::LinkReceived, counters.arrived as f64),
        (Figure::InterfaceDropped, counters.lost as f64),
        (Figure::ApplicationDropped, counters.dropped as f64),
        (Figure::Handled, handled),
        (Figure::HandledPps, handled / sent.seconds()),
        (Figure::SentPps, sent.pps()),
        (Figure::GeneratorNs, sent.cpu_ns as f64 / sent.frames as f64),
    ])
}

/// Returns the number of callbacks, and `ps_drop`, from dumpcap's line `Packets received/dropped on
/// interface 'eth0': 1002/0 (pcap:0/...`.
fn of_dumpcap(said: &str) -> Result<(u64, u64)> {
    let numbers = |line: &str| {
        let (_, after) = line.split_once("received/dropped on interface")?;
        let (_, numbers) = after.split_once("': ")?;
        let (captured, lost) = numbers.split_whitespace().next()?.split_once('/')?;
        Some((captured.parse().ok()?, lost.parse().ok()?))
    };
    said.lines()
        .find_map(numbers)
        .with_context(|| format!("no counters of dumpcap in:\n{said}"))
}

/// Counts lines: tshark prints one for each packet, which begins with its number.
fn of_tshark(said: &str) -> Result<u64> {
    let number = |line: &str| line.split_once('\t')?.0.parse::<u64>().ok();
    let lines = said.lines().filter_map(number).zip(1..);
    lines.into_iter().try_fold(0, |_, (number, line)| {
        ensure!(number == line, "tshark's line {line} is of packet {number}");
        Ok(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumpcaps_counters_are_the_callbacks_and_the_kernels() {
        let said = "Capturing on 'v'\nFile: -\n\rPackets captured: 70\nPackets received/dropped on \
                    interface 'v': 70/30 (pcap:30/dumpcap:0/flushed:0/ps_ifdrop:0) (70.0%)\n";
        assert_eq!(of_dumpcap(said).unwrap(), (70, 30));
        assert!(of_dumpcap("Capturing on 'v'\n").is_err());
    }

    #[test]
    fn every_packet_that_tshark_handled_has_its_line() {
        let said = "Running as user \"root\".\n1\t10.1.0.0\n2\t10.1.0.1\n3\t10.1.0.2\n";
        assert_eq!(of_tshark(said).unwrap(), 3);
        assert_eq!(of_tshark("Running as user \"root\".\n").unwrap(), 0);
        assert!(of_tshark("1\t10.1.0.0\n3\t10.1.0.2\n").is_err());
    }
}
