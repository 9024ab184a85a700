//! Removes the pages and puts back the device settings that copies have left behind, because they
//! were killed or had dropped their privileges.

use fanpcap_group::page::GroupDir;
use fanpcap_linux::interface;
use fanpcap_nic::device::Device;
use fanpcap_nic::journal::{self, Journal, Outcome};
use fanpcap_nic::settings::Settings;

use super::output::Output;

/// Removes pages and puts back settings that no living process needs any more, if this process has
/// the privilege.
pub(super) fn tidy(output: &Output) {
    GroupDir::sweep_all();
    // An error does no harm here: a user who may not enter the directory of the journals can't
    // have changed a setting.
    for ifindex in journal::journals().unwrap_or_default() {
        let Ok(Some(name)) = interface::find_name(ifindex) else {
            continue;
        };
        if let Err(why) = recover(&name) {
            output.say(&format!(
                "{name}: {why}; 'fanpcap tune {name} --restore' tries again"
            ));
        }
    }
}

fn recover(name: &str) -> Result<(), String> {
    let device = Device::open(name).map_err(|error| error.to_string())?;
    let mut journal = Journal::open(&device).map_err(|error| error.to_string())?;
    for change in journal.recover(&Settings(&device)) {
        if let Outcome::Failed(error) = change.outcome {
            return Err(format!(
                "{} does not have its former value: {error}",
                change.knob
            ));
        }
    }
    Ok(())
}
