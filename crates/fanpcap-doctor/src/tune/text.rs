//! The texts of `fanpcap tune` on a device, its changes, and their results.

use std::fmt::Write as _;

use anyhow::Result;
use fanpcap_config::report::harmless_text;
use fanpcap_linux::process::cpu;
use fanpcap_nic::apply::{Tried, Verdict};
use fanpcap_nic::channels;
use fanpcap_nic::facts::Facts;
use fanpcap_nic::journal::{Journal, Outcome, Undone};
use fanpcap_nic::knob::Knob;
use fanpcap_nic::plan::Plan;
use fanpcap_nic::plan::text::shown;
use fanpcap_terminal::streams::{self, Reader};

/// The device in a few lines.
pub(super) fn facts(facts: &Facts) -> String {
    let driver = if facts.driver.is_empty() {
        "no driver"
    } else {
        &facts.driver
    };
    let state = if facts.is_up { "up" } else { "down" };
    let mut text = format!("{}: {driver}, {state}", facts.device);
    if let Some(node) = facts.node {
        // Writing to a String can't fail.
        let _ = write!(text, ", node {node}");
    }
    let _ = match facts.missed {
        0 => writeln!(text, ", nothing lost so far"),
        missed => writeln!(text, ", no room for {missed} packets so far"),
    };
    match facts.channels {
        Some(now) => {
            let most = channels::Channels {
                rx: now.most[0],
                tx: now.most[1],
                other: now.most[2],
                combined: now.most[3],
                ..now
            };
            let (now, most) = (channels::text(now), channels::text(most));
            let _ = writeln!(text, "channels {now} of {most}");
        }
        None => text.push_str("no channels to set\n"),
    }
    if facts.interrupts.is_empty() {
        text.push_str("no interrupts to place\n");
    }
    for (interrupt, affinity) in &facts.interrupts {
        if let Some(channel) = interrupt.serves.channel() {
            let (number, name) = (interrupt.number, &interrupt.name);
            let effective = cpu::list_text(&affinity.effective);
            let _ = writeln!(
                text,
                "channel {channel}: interrupt {number} {name} on CPU {effective}"
            );
        }
    }
    text
}

/// The changes in the journal, and the changes that another program has overwritten since.
pub(super) fn journal(journal: &Journal, changed: &[(Knob, String)]) -> String {
    let mut text = String::new();
    for change in journal.changes().iter().filter(|it| it.old != it.new) {
        let pids: Vec<String> = change.owners.iter().map(|it| it.pid.to_string()).collect();
        let why = match (pids.is_empty(), change.stays) {
            (false, _) => format!("while process {} runs", pids.join(", ")),
            (true, true) => "until --restore".to_owned(),
            (true, false) => "by a process that is gone: --restore puts it back".to_owned(),
        };
        let (old, new) = (shown(&change.old), shown(&change.new));
        let _ = writeln!(text, "changed: {}: {old} -> {new}, {why}", change.knob);
    }
    for (knob, is) in changed {
        let _ = writeln!(
            text,
            "changed by somebody else since: {knob} is {}",
            shown(is)
        );
    }
    text
}

/// The results of the plan's steps.
pub(super) fn tried(device: &str, tried: &[Tried<'_>], plan: &Plan) -> String {
    let mut text = String::new();
    for Tried { step, result } in tried {
        let verdict = match result {
            Ok(Verdict::Holds) => "done".to_owned(),
            Ok(Verdict::Held) => "was so".to_owned(),
            Ok(Verdict::AtNextInterrupt(cpus)) => format!("on CPU {cpus} until its next interrupt"),
            Err(error) => format!("REFUSED: {error}"),
        };
        let _ = writeln!(text, "{device}: {}: {verdict}", step.text());
    }
    if tried.is_empty() {
        let _ = writeln!(text, "{device}: nothing to change");
    }
    for note in &plan.notes {
        let _ = writeln!(text, "note: {note}");
    }
    let list = plan.application_list();
    let _ = writeln!(text, "for applications: fanpcap run --cpus {list} ...");
    text
}

/// The results of undoing changes.
pub(super) fn undone(device: &str, undone: &[Undone]) -> String {
    let mut text = String::new();
    for change in undone {
        let Undone {
            knob,
            old,
            new,
            outcome,
        } = change;
        let (old, new) = (shown(old), shown(new));
        let _ = match outcome {
            Outcome::Restored => writeln!(text, "{device}: {knob}: {new} -> {old}, as before"),
            Outcome::WasBack => writeln!(text, "{device}: {knob}: already is {old} again"),
            Outcome::Foreign { is } => writeln!(
                text,
                "{device}: {knob}: is {} and not {new}: changed by somebody else, left alone",
                shown(is)
            ),
            // The device has the value of a later change, which is undone separately or stays.
            Outcome::Later => Ok(()),
            Outcome::Gone => writeln!(
                text,
                "{device}: {knob}: does not exist any more, so {old} can't be put back"
            ),
            Outcome::Failed(error) => {
                writeln!(text, "{device}: {knob}: {old} can't be put back: {error}")
            }
        };
    }
    text
}

/// Prints lines, without control characters that names may contain.
pub(super) fn say(text: &str) -> Result<Reader> {
    let mut reader = Reader::Reads;
    for line in text.lines() {
        reader = streams::print(&format!("{}\n", harmless_text(line)))?;
    }
    Ok(reader)
}
