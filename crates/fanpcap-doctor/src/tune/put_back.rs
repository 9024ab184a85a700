//! `fanpcap tune --restore`: undoes all changes, on one device or on all devices.

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use fanpcap_linux::interface;
use fanpcap_linux::process::effective_user;
use fanpcap_nic::device::Device;
use fanpcap_nic::journal::{self, Journal, Outcome};
use fanpcap_nic::settings::Settings;
use fanpcap_terminal::streams;

use super::text;

/// Undoes all changes on all devices of the network namespace.
pub(super) fn all() -> Result<ExitCode> {
    let mut status = ExitCode::SUCCESS;
    let indices = journal::journals()?;
    if indices.is_empty() {
        text::say("nothing to put back")?;
    }
    for ifindex in indices {
        let Some(name) = interface::find_name(ifindex)? else {
            journal::forget(ifindex)?;
            text::say(&format!("the device with index {ifindex} is gone"))?;
            continue;
        };
        if one(&Device::open(&name)?)? != ExitCode::SUCCESS {
            status = ExitCode::FAILURE;
        }
    }
    Ok(status)
}

/// The device's journal.
pub(super) fn journal(device: &Device) -> Result<Journal> {
    Journal::open(device).map_err(|error| {
        let advice = if effective_user() == 0 {
            ""
        } else {
            "; run this command as root"
        };
        anyhow!("{}: {error}{advice}", device.name)
    })
}

/// Undoes all changes on a device, except those that a living process needs.
pub(super) fn one(device: &Device) -> Result<ExitCode> {
    let name = &device.name;
    let status = undo(device, journal(device)?)?;
    if let Some(path) = Journal::earlier(device) {
        let path = path.display();
        text::say(&format!(
            "{name}: an earlier build has left the journal {path}. Containers that share /run/fanpcap may have \
             written this journal, so it was not used. If the journal is yours, 'fanpcap tune {name} \
             --restore --earlier' puts back the values in it"
        ))?;
    }
    Ok(status)
}

/// Undoes the changes in the journal of an earlier build.
pub(super) fn earlier(device: &Device) -> Result<ExitCode> {
    let name = &device.name;
    let journal = Journal::open_earlier(device).map_err(|error| anyhow!("{name}: {error}"))?;
    match journal {
        Some(journal) => undo(device, journal),
        None => {
            text::say(&format!("{name}: no earlier build has left a journal"))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn undo(device: &Device, mut journal: Journal) -> Result<ExitCode> {
    let name = &device.name;
    let undone = journal.restore(&Settings(device));
    let mut page = text::undone(name, &undone);
    page += &text::journal(&journal, &[]);
    if page.is_empty() {
        page = format!("{name}: nothing to put back\n");
    }
    text::say(&page)?;
    let has_failed = undone
        .iter()
        .any(|it| matches!(it.outcome, Outcome::Failed(_)));
    Ok(streams::status(!has_failed))
}
