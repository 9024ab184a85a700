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
    let mut journal = journal(device)?;
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
