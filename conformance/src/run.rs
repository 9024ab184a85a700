//! Runs C programs, each in a new network namespace that has the two ends of a wire. Compares the
//! programs' outputs on the variants with the output on the system's library.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fanpcap_loading::{Ended, run};
use fanpcap_testkit::veth::ip;
use fanpcap_testkit::{Scratch, Veth, netns};

use crate::difference::difference;
use crate::poller::Poller;
use crate::{Behaviour, Variant, outside, parallel, reasons};

/// The devices on which programs send and capture.
const DEVICES: [&str; 2] = ["va", "vb"];
/// The suffix that our library appends to the system's string in `pcap_lib_version()`.
pub const MARK: &str = concat!(" + fanpcap ", env!("CARGO_PKG_VERSION"));

/// The variants whose output differs from that on the system's library, each with the difference.
pub type Differences = BTreeMap<Variant, String>;

/// Runs a behaviour's program in each of these variants, and compares the output with that on the
/// system's library.
///
/// # Errors
/// The differences that have no reason, and the reasons that have no difference.
pub fn compare(behaviour: &Behaviour, variants: &[Variant]) -> Result<()> {
    let differing = differences(behaviour, variants)?;
    let objection = |variant: &Variant| {
        let difference = differing.get(variant).map(String::as_str);
        reasons::objection(&behaviour.name, *variant, difference)
    };
    let objections: String = variants.iter().filter_map(objection).collect();
    ensure!(objections.is_empty(), "- system's, + ours\n{objections}");
    Ok(())
}

/// Finds which of these variants behave differently from the system's library. Returns them with
/// the differences of their outputs.
///
/// # Errors
/// The program can't be compiled or run, or fails on the system's library.
pub fn differences(behaviour: &Behaviour, variants: &[Variant]) -> Result<Differences> {
    let scratch = Scratch::new()?;
    let program = behaviour.compile(&scratch, &[])?;
    let on = |variant: Variant| {
        let mut command = variant.command(&program)?;
        if reasons::reason(&behaviour.name, variant).is_some() {
            // The program need not wait long for packets that do not come.
            command.env("FANPCAP_PATIENCE", "1");
        }
        let ended = run_in_scene(&scratch, variant, command)?;
        Ok((variant, ended))
    };
    // Run all variants at the same time, because a run mostly waits.
    let all = [&[Variant::System], variants].concat();
    let workers = all.len();
    let runs = parallel::map(all, workers, &on).into_iter();
    let mut runs: BTreeMap<Variant, Ended> = runs.collect::<Result<_>>()?;
    let system = runs.remove(&Variant::System).context("the system's run")?;
    ensure!(
        system.status.success(),
        "{} on the system's library:\n{}",
        behaviour.name,
        transcript(&system)
    );
    let system = transcript(&system);
    let mut differing = Differences::new();
    for (variant, ended) in runs {
        let ours = transcript(&ended).replace(MARK, "");
        if ours != system {
            differing.insert(variant, difference(&system, &ours));
        }
    }
    Ok(differing)
}

/// Runs a command in a new namespace with a wire between two devices, in a directory of its own,
/// and with the variant's poller. The command gets the devices' names as arguments.
///
/// # Errors
/// The namespace can't be created, or the program or the poller doesn't end.
pub fn run_in_scene(scratch: &Scratch, variant: Variant, mut command: Command) -> Result<Ended> {
    let directory = scratch.new_file("run");
    fs::create_dir(&directory)?;
    let beside = Scratch::new()?;
    let variables = outside::variables(variant, &beside)?;
    command.args(DEVICES).current_dir(&directory);
    if variant.polled().is_empty() {
        command.envs(variables.iter().map(|(name, value)| (name, value)));
    }
    netns::within_new(move || {
        let wire = Veth::new(DEVICES[0], DEVICES[1], 1)?;
        ip(&format!("link set {} address 02:00:00:00:00:0a", wire.near))?;
        ip(&format!("link set {} address 02:00:00:00:00:0b", wire.far))?;
        ip(&format!("address add 192.0.2.2/24 dev {}", wire.far))?;
        let poller = Poller::start(scratch, variant, &variables)?;
        let ended = run(scratch, &mut command)?;
        poller.map_or(Ok(()), Poller::end)?;
        Ok(ended)
    })
}

/// The output of a program, line by line, and its exit status.
fn transcript(ended: &Ended) -> String {
    let complaints = ended.err.lines().map(|line| format!("stderr: {line}\n"));
    let out = ended.out.trim_end_matches('\n');
    format!(
        "{out}\n{}{}\n",
        complaints.collect::<String>(),
        ended.status
    )
}

/// Runs a program that checks its own memory, or is checked by `watcher`. Fails if errors were
/// found.
///
/// # Errors
/// The errors that were found; or the program failed.
pub fn run_watched(scratch: &Scratch, watcher: &[&str], program: &Path) -> Result<()> {
    let variant = Variant::Tpacket;
    let mut command = variant.command(watcher[0])?;
    command.args(&watcher[1..]).arg(program);
    let ended = run_in_scene(scratch, variant, command)?;
    let clean = ended.status.success() && !REPORTS.iter().any(|word| ended.err.contains(word));
    ensure!(clean, "{}\n{}", ended.status, ended.err);
    Ok(())
}

/// Marks that distinguish reports of sanitizers and valgrind from libpcap's own warnings.
const REPORTS: [&str; 2] = ["Sanitizer", "=="];
