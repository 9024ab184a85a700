//! Keeps VLAN tags in the frames of a device: an engine in user space does not get a tag that the
//! device has removed from a frame.

use anyhow::{Result, anyhow};
use fanpcap_nic::device::Device;
use fanpcap_nic::error::DeviceError;
use fanpcap_nic::journal::{Hold, Journal, Outcome, Wish};
use fanpcap_nic::knob::{Knob, Knobs, Setting};
use fanpcap_nic::settings::Settings;
use fanpcap_terminal::streams;

use super::place::Place;

/// A device that leaves tags in frames. When this value is dropped, or when the process has died
/// and `fanpcap tune` looks at the device, the device has its former setting again.
#[derive(Debug)]
pub(super) struct KeptTags {
    device: Device,
    hold: Option<Hold>,
}

/// The kernel's name of the feature.
const REMOVES_TAGS: &str = "rx-vlan-hw-parse";

/// errno(3).
const EPERM: i32 = 1;

impl KeptTags {
    /// Makes a device leave tags in frames. `None` if it does so already.
    ///
    /// # Errors
    /// The device can't do so, or another process wants the opposite.
    pub(super) fn on(place: &Place) -> Result<Option<Self>> {
        let kept = keep(&place.device);
        kept.map_err(|error| {
            let (device, needs) = match error.errno() {
                EPERM => (&place.device, ", which takes CAP_NET_ADMIN"),
                _ => (&place.device, ""),
            };
            anyhow!(
                "{place}: the device takes VLAN tags out of frames ('ethtool -K {device} rxvlan \
                 off' would leave them there{needs}): {error}"
            )
        })
    }
}

fn knob() -> Knob {
    Setting::Feature(REMOVES_TAGS.to_owned()).into()
}

fn keep(device: &str) -> Result<Option<KeptTags>, DeviceError> {
    let device = Device::open(device)?;
    let settings = Settings(&device);
    // A journal may have the change of a poller that was killed. This process then owns the change.
    let is_left = |journal: &Journal| journal.changes().iter().any(|it| it.knob == knob());
    let is_on = match settings.read(&knob()) {
        Err(error) if error.is_gone() => return Ok(None),
        read => read? == "on",
    };
    let mut journal = Journal::open(&device)?;
    if !is_on && !is_left(&journal) {
        return Ok(None);
    }
    let hold = journal.hold()?;
    journal.set(&settings, Wish::While(&hold), &knob(), "off")?;
    drop(journal);
    let hold = Some(hold);
    Ok(Some(KeptTags { device, hold }))
}

impl Drop for KeptTags {
    fn drop(&mut self) {
        let Some(hold) = self.hold.take() else {
            return;
        };
        let settings = Settings(&self.device);
        // After an error, the journal keeps the change, and `fanpcap tune --restore` undoes it.
        let undone = Journal::open(&self.device).map(|mut it| it.release(&settings, hold));
        let name = &self.device.name;
        let failed = match undone {
            Err(error) => Some(error.to_string()),
            Ok(undone) => undone.into_iter().find_map(|it| match it.outcome {
                Outcome::Failed(error) => Some(error.to_string()),
                Outcome::Restored
                | Outcome::WasBack
                | Outcome::Foreign { .. }
                | Outcome::Later
                | Outcome::Gone => None,
            }),
        };
        if let Some(error) = failed {
            streams::note(&format!(
                "fanpcap: {name} still leaves VLAN tags in frames: {error}; 'fanpcap tune {name} \
                 --restore' puts the setting back\n"
            ));
        }
    }
}
