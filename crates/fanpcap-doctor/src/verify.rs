//! `fanpcap verify`: a live check of a device. It checks whether flows are split over members,
//! whether one member gets both directions of a flow, whether the ledger adds up, and whether
//! packets are lost.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use fanpcap_capture::Each;
use fanpcap_capture::{Task, Witnessed, witnessed};
use fanpcap_config::report::harmless_text;
use fanpcap_group::roster::{self, RosterEntry};
use fanpcap_linux::interface;
use fanpcap_linux::wait::stop;
use fanpcap_pcap::{Handle, Header, Precision};
use fanpcap_terminal::{DeviceArgument, group_number, seconds, streams};
use serde::Serialize;

mod flows;
mod traffic;
mod verdict;

use flows::{Flows, Places, Sample};
use traffic::Traffic;
use verdict::{Check, Outcome, Seen, Verdict};

/// Captures for a while, and checks whether members get whole flows
///
/// The members are threads of this command. They share the device's packets in a new group, so that
/// no other application loses packets. The command prints the share of each member. It checks
/// whether one member got all packets of each flow, in both directions. It also checks whether the
/// received packets equal the delivered plus the dropped packets, and whether packets were lost. If
/// there are many flows, only a sample is checked. Fragments and ICMP errors don't show their flow
/// and are not judged. The exit status is 3 if a check fails, and 1 if nothing could be verified,
/// for example because too few packets came.
#[derive(Args, Debug)]
#[command(mut_arg("device", |it| it.required(true)))]
pub struct Arguments {
    #[command(flatten)]
    device: DeviceArgument,
    /// How many members share the device's packets
    #[arg(short = 'n', long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    members: u16,
    /// For how many seconds
    #[arg(short = 't', long = "seconds", alias = "for", value_name = "SECONDS", default_value = "5", value_parser = |text: &str| seconds(text, &(0.1..=86_400.0)))]
    time: Duration,
    /// How the packets are shared: flow, hash, lb, rnd, cpu, rollover, qm, or a steering program
    /// [default: from the settings, else flow]
    #[arg(long, value_name = "MODE")]
    fanout: Option<String>,
    /// The group, 0 to 65535; its present members get their share of the packets [default: a new
    /// group]
    #[arg(short, long, value_name = "NUMBER", value_parser = group_number)]
    group: Option<u16>,
    /// Send test traffic on this device, which is connected to the captured device: the other end
    /// of a veth, or a port that is wired to the captured port
    #[arg(long, value_name = "DEV")]
    generate: Option<String>,
    /// Print one JSON object (docs/verify-json.md)
    #[arg(long)]
    json: bool,
}

/// The exit status if a check fails.
const FAILED: u8 = 3;

/// Version of the JSON format. A new field does not change the version; a changed or removed field
/// increments it.
const SCHEMA: u32 = 1;

/// Time that the members have to get their shares after the last member has joined.
const SETTLES: Duration = Duration::from_millis(500);

/// Ethernet's link-layer type (`DLT_EN10MB`).
const ETHERNET: i32 = 1;

/// The JSON.
#[derive(Serialize)]
struct VerifyPage {
    schema: u32,
    device: String,
    group: Option<u16>,
    mode: Option<String>,
    seconds: f64,
    /// The packets of the judged flows.
    packets_judged_total: u64,
    /// Frames that verify itself sent.
    generated_packets_total: Option<u64>,
    members: Vec<Share>,
    flows_total: usize,
    flows_sampled_one_in: u64,
    packets_without_flow_total: u64,
    packets_unread_total: u64,
    unread_percent: f64,
    /// Packets that came before all members had joined, or after the seconds were over. Only the
    /// ledger has them.
    packets_outside_total: u64,
    checks: Vec<Check>,
    verified: bool,
    #[serde(skip)]
    verdict: Verdict,
}

/// A member's share of the packets that came after all members had joined.
#[derive(Serialize)]
struct Share {
    packets_total: u64,
    share_percent: f64,
}

/// Runs `fanpcap verify`.
///
/// # Errors
/// Nothing can be captured or sent, so that nothing is verified.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(sends) = &arguments.generate {
        check_sender(sends, arguments.device.required())?;
    }
    let mut witness = Witness::new(arguments);
    let task = Task {
        device: arguments.device.required().to_owned(),
        threads: arguments.members,
        group: arguments.group,
        fanout: arguments.fanout.clone(),
        time: arguments.time + SETTLES,
    };
    let captured = witnessed(&task, &mut |handle| witness.of_member(handle));
    let generated = witness.traffic.take().map(Traffic::finish);
    let told = witness.told(&captured?, generated.transpose()?)?;
    streams::print_as(arguments.json, &told, || page(&told))?;
    Ok(match told.verdict {
        Verdict::Verified => ExitCode::SUCCESS,
        Verdict::TooLittle => ExitCode::FAILURE,
        Verdict::Failed => ExitCode::from(FAILED),
    })
}

/// Checks that `sends`, the device of --generate, is there and is not the captured device, whose
/// own packets go out and do not come in.
fn check_sender(sends: &str, captured: &str) -> Result<()> {
    let index = interface::find(sends).context("looking for the device of --generate")?;
    let index = index.with_context(|| {
        format!(
            "--generate: {}; if the other end of {captured} is in another network namespace, leave \
             --generate out, and run 'ip netns exec NAME fanpcap gen {sends}' at the same time",
            interface::missing(sends)
        )
    })?;
    ensure!(
        interface::index(captured) != Some(index),
        "--generate {sends}: this is the captured device; name the device at the other end"
    );
    Ok(())
}

/// Counts the packets of all members, and starts the test traffic.
struct Witness<'a> {
    arguments: &'a Arguments,
    sample: Sample,
    members: Vec<Arc<Mutex<Watched>>>,
    group: Option<u16>,
    mode: Option<String>,
    traffic: Option<Traffic>,
}

/// The packets of a member.
#[derive(Debug, Default)]
struct Watched {
    flows: Flows,
    /// The time when all members had joined, in nanoseconds since 1970; `None` until then. Packets
    /// with an earlier timestamp do not count.
    from_ns: Option<i128>,
}

impl<'a> Witness<'a> {
    fn new(arguments: &'a Arguments) -> Self {
        Self {
            arguments,
            sample: Sample::default(),
            members: Vec::new(),
            group: None,
            mode: None,
            traffic: None,
        }
    }

    /// Returns the callback for the packets of the next member, whose handle is open.
    fn of_member(&mut self, handle: &Handle) -> Result<Each> {
        let device = self.arguments.device.required();
        ensure!(
            handle.datalink() == ETHERNET,
            "{device} has no Ethernet frames: verify reads only Ethernet"
        );
        let watched = Arc::new(Mutex::new(Watched {
            flows: Flows::new(self.sample.clone()),
            from_ns: None,
        }));
        self.members.push(Arc::clone(&watched));
        if self.members.len() == usize::from(self.arguments.members) {
            self.all_are_there(handle)?;
        }
        let is_nano = handle.tstamp_precision() == Precision::Nano;
        Ok(Box::new(move |header, bytes| {
            let at_ns = stamp(header, is_nano);
            let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
            if watched.from_ns.is_some_and(|from| at_ns >= from) {
                watched.flows.add(bytes);
            }
        }))
    }

    fn all_are_there(&mut self, handle: &Handle) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let from = now.unwrap_or_default() + SETTLES;
        for member in &self.members {
            let mut watched = member.lock().unwrap_or_else(PoisonError::into_inner);
            watched.from_ns = Some(i128::try_from(from.as_nanos()).unwrap_or(i128::MAX));
        }
        self.group = handle.group();
        self.mode = self.group.and_then(|group| self.mode_of(group));
        if let Some(device) = &self.arguments.generate {
            let stop = stop::on_signals().context("catching signals")?;
            self.traffic = Some(Traffic::start(device, stop)?);
        }
        Ok(())
    }

    /// The group's mode, from a member page.
    fn mode_of(&self, group: u16) -> Option<String> {
        let index = interface::index(self.arguments.device.required());
        let is_it = |it: &&RosterEntry| it.is_in(group) && Some(it.socket.ifindex) == index;
        let entries = roster::entries().ok()?;
        let page = entries.iter().find(is_it)?.page.as_ref()?;
        Some(page.shown_mode())
    }

    fn told(self, captured: &Witnessed, generated: Option<u64>) -> Result<VerifyPage> {
        let arguments = self.arguments;
        let take = |it: Arc<Mutex<Watched>>| {
            let mut watched = it.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut watched.flows)
        };
        let flows: Vec<Flows> = self.members.into_iter().map(take).collect();
        let packets: Vec<u64> = flows.iter().map(|it| it.packets).collect();
        let without_flow = flows.iter().map(|it| it.without_flow).sum();
        let unread = flows.iter().map(|it| it.unread).sum();
        let places = Places::of(flows);
        let all: u64 = packets.iter().sum();
        if all == 0 {
            let device = arguments.device.required();
            bail!(
                "no packet came on {device}: nothing is verified; wait for traffic, or let verify send some: \
                 --generate with the device at the other end"
            );
        }
        if let Some((sent, sends)) = generated.zip(arguments.generate.as_ref()) {
            let came = captured.device.map_or(all, |(received, _)| received);
            // Some frames are sent before the first count of the device, or after the last one.
            ensure!(
                came >= sent / 2,
                "--generate {sends}: {sent} frames were sent there, and {} received {came} packets: connect the two devices",
                arguments.device.required()
            );
        }
        let seen = Seen {
            captured,
            packets: &packets,
            places: &places,
            one_in: self.sample.one_in(),
        };
        let checks = verdict::checks(&seen);
        let verdict = Verdict::of(&checks);
        let delivered: u64 = captured.members.iter().map(|it| it.captured).sum();
        Ok(VerifyPage {
            schema: SCHEMA,
            device: arguments.device.required().to_owned(),
            group: self.group,
            mode: self.mode,
            seconds: arguments.time.as_secs_f64(),
            generated_packets_total: generated,
            members: packets.iter().map(|&it| Share::of(it, all)).collect(),
            flows_total: places.flows,
            flows_sampled_one_in: self.sample.one_in(),
            packets_without_flow_total: without_flow,
            packets_unread_total: unread,
            unread_percent: percent(unread, all),
            packets_outside_total: delivered.saturating_sub(all),
            packets_judged_total: places.packets,
            verified: verdict == Verdict::Verified,
            verdict,
            checks,
        })
    }
}

impl Share {
    fn of(packets: u64, all: u64) -> Self {
        Self {
            packets_total: packets,
            share_percent: percent(packets, all),
        }
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "a share of counts far below 2^53"
)]
fn percent(part: u64, all: u64) -> f64 {
    (part as f64 * 1e4 / all.max(1) as f64).round() / 100.0
}

/// When a packet was captured, nanoseconds since 1970.
fn stamp(header: &Header, is_nano: bool) -> i128 {
    let fraction = i128::from(header.fraction) * if is_nano { 1 } else { 1000 };
    i128::from(header.seconds) * 1_000_000_000 + fraction
}

fn page(told: &VerifyPage) -> String {
    let known = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
    let mut page = format!(
        "{}, group {} ({}), {} members, {} s\n",
        told.device,
        known(told.group.map(|it| it.to_string())),
        known(told.mode.clone()),
        told.members.len(),
        told.seconds
    );
    for (number, member) in told.members.iter().enumerate() {
        let Share {
            packets_total,
            share_percent,
        } = member;
        page +=
            &format!("  member {number:<3} {packets_total:>12} packets {share_percent:>6.2} %\n");
    }
    if told.packets_without_flow_total > 0 {
        let count = told.packets_without_flow_total;
        page += &format!("  {count} packets of no flow that could be judged\n");
    }
    if told.packets_outside_total > 0 {
        let count = told.packets_outside_total;
        page += &format!(
            "  {count} packets before and after these {} s, only in the ledger\n",
            told.seconds
        );
    }
    if told.packets_unread_total > 0 {
        let (count, share) = (told.packets_unread_total, told.unread_percent);
        page += &format!(
            "  {count} packets ({share:.2} %) were shared by an outer header: verify can't read the packets inside\n"
        );
    }
    page.push('\n');
    for check in &told.checks {
        page += &format!(
            "{:<5} {:<11} {}\n",
            check.outcome.word(),
            check.name,
            check.what
        );
        for example in &check.examples {
            page += &format!("{:18}such as {example}\n", "");
        }
    }
    page += &format!("\n{}\n", conclusion(told));
    let lines: Vec<String> = page.lines().map(harmless_text).collect();
    lines.join("\n") + "\n"
}

/// The last line of the text: the verdict, and how much it is about.
fn conclusion(told: &VerifyPage) -> String {
    let judged = format!(
        "{} flows with {} packets",
        told.flows_total, told.packets_judged_total
    );
    let open = told.checks.iter().filter(|it| it.outcome == Outcome::Open);
    let open: Vec<&str> = open.map(|it| it.name).collect();
    match told.verdict {
        Verdict::Failed => "NOT verified".to_owned(),
        Verdict::TooLittle => format!(
            "NOT verified: {judged} are too few; wait for traffic, take longer (--seconds), or let verify send some (--generate)"
        ),
        Verdict::Verified if open.is_empty() => format!("verified: {judged}"),
        Verdict::Verified => format!("verified, except {}: {judged}", open.join(" and ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_in_nanoseconds() {
        let header = Header {
            seconds: 2,
            fraction: 5,
            ..Header::default()
        };
        assert_eq!(stamp(&header, true), 2_000_000_005);
        assert_eq!(stamp(&header, false), 2_000_005_000);
    }
}
