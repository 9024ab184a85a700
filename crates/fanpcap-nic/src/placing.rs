//! Sets channels, interrupts and polling threads as an application wants them. If one setting
//! fails, the other changes are undone. Undoes the changes when the application is done.

use crate::channels;
use crate::device::Device;
use crate::error::DeviceError;
use crate::interrupts;
use crate::journal::{Hold, Journal, Wish};
use crate::knob::{Knob, Placement, on_or_off};
use crate::napi;
use fanpcap_linux::process::cpu;
use std::fmt;

/// A setting that an application wants on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// Numbers of channels, by kind.
    Channels(channels::Wanted),
    /// A number of channels of the kind with which this device receives.
    Receiving(u32),
    /// The CPUs of a channel's interrupts.
    Irq {
        /// The channel.
        channel: u32,
        /// The CPUs.
        cpus: Vec<usize>,
    },
    /// The CPU of the thread that polls a receive queue. Turns threaded NAPI on for the device.
    Napi {
        /// The queue.
        queue: u32,
        /// The CPU.
        cpu: usize,
    },
}

/// The time for which an application wants its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Until the value [`Placed`] is dropped, or the process ends.
    Dropped,
    /// Until a user restores the old values (`fanpcap tune --restore`).
    Restored,
}

/// The settings that an application made on a device. A drop of this value undoes them. If the
/// process ends without a drop, the next process that opens the journal undoes the settings.
#[derive(Debug)]
pub struct Placed {
    device: Device,
    hold: Option<Hold>,
}

/// The reason why a device can't be set as an application wants. No setting has been changed.
#[derive(Debug)]
pub struct PlaceError {
    /// The index of the want that failed; `None` if the failure concerns no single want.
    pub want: Option<usize>,
    /// The error.
    pub error: DeviceError,
}

impl From<DeviceError> for PlaceError {
    fn from(error: DeviceError) -> Self {
        Self { want: None, error }
    }
}

/// First undoes changes of processes that have died. Then makes the settings `wants` on a device,
/// in the order of the list. Does not touch settings that already have the wanted value.
///
/// # Errors
/// [`PlaceError`].
pub fn place(device: &str, wants: &[Want], until: Until) -> Result<Placed, PlaceError> {
    let device = Device::open(device)?;
    let mut journal = Journal::open(&device)?;
    // Ignore the result: commands that look for the changes of dead processes, such as 'fanpcap
    // tune', report them.
    let _ = journal.recover(&Placement(&device));
    let hold = journal.hold()?;
    if let Err(error) = set_all(&device, &mut journal, wants, Wish::While(&hold)) {
        let _ = journal.release(&Placement(&device), hold);
        return Err(error);
    }
    let hold = match until {
        Until::Dropped => Some(hold),
        Until::Restored => {
            let stays = set_all(&device, &mut journal, wants, Wish::Stays);
            // Undoes the changes that do not stay.
            let _ = journal.release(&Placement(&device), hold);
            stays?;
            None
        }
    };
    drop(journal);
    Ok(Placed { device, hold })
}

impl Drop for Placed {
    fn drop(&mut self) {
        // A forked child has a copy of the hold, and must put nothing back.
        let Some(hold) = self.hold.take().filter(Hold::is_own) else {
            return;
        };
        // If the journal can't be opened, the next process that opens it releases the hold.
        if let Ok(mut journal) = Journal::open(&self.device) {
            let _ = journal.release(&Placement(&self.device), hold);
        }
    }
}

fn set_all(
    device: &Device,
    journal: &mut Journal,
    wants: &[Want],
    wish: Wish<'_>,
) -> Result<(), PlaceError> {
    for (at, want) in wants.iter().enumerate() {
        let failed = |error: DeviceError| PlaceError {
            want: (!error.is_of_journal()).then_some(at),
            error,
        };
        for (knob, value) in knobs(device, want).map_err(failed)? {
            let set = journal.set(&Placement(device), wish, &knob, &value);
            set.map_err(failed)?;
        }
    }
    Ok(())
}

/// The settings for a want, with their values.
fn knobs(device: &Device, want: &Want) -> Result<Vec<(Knob, String)>, DeviceError> {
    Ok(match want {
        Want::Channels(wanted) => {
            let to = channels::with(channels::read(device)?, *wanted)?;
            vec![(Knob::Channels, channels::text(to))]
        }
        Want::Receiving(count) => {
            let [.., combined] = channels::read(device)?.most;
            let kind = if combined > 0 { "combined" } else { "rx" };
            vec![(Knob::Channels, format!("{kind}={count}"))]
        }
        Want::Irq { channel, cpus } => {
            let interrupts = interrupts::of_channel(device, *channel)?;
            let value = cpu::list_text(cpus);
            let knob = |it: interrupts::Interrupt| (Knob::Irq(it.number), value.clone());
            interrupts.into_iter().map(knob).collect()
        }
        Want::Napi { queue, cpu } => {
            let own = (Knob::Napi(*queue), cpu.to_string());
            match napi::is_threaded(device)? {
                true => vec![own],
                false => vec![(Knob::Threaded, on_or_off(true).to_owned()), own],
            }
        }
    })
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let DeviceError::Disagrees { pid, value } = &self.error {
            return write!(f, "process {pid} wants the value {value} by now");
        }
        self.error.fmt(f)
    }
}

impl std::error::Error for PlaceError {}
