//! Settings of devices that copies have left, as they could not put them back any more: they were
//! killed, or have dropped their privileges.

use fanpcap_linux::interface;
use fanpcap_nic::device::Device;
use fanpcap_nic::journal::{self, Journal, Outcome};
use fanpcap_nic::settings::Settings;

use super::output::Output;

/// Puts back what no living process wants any more, as far as this process may.
pub(super) fn put_back(output: &Output) {
    // Who may not enter the directory of the journals has changed nothing.
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
            return Err(format!("{} is not as before: {error}", change.knob));
        }
    }
    Ok(())
}
