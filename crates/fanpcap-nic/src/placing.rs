//! Sets channels, interrupts and polling threads as an application wants them: all of them or none.
//! Undoes this when the application is done.

use crate::channels;
use crate::device::{Device, NoDevice};
use crate::interrupts;
use crate::journal::{Hold, Journal, JournalError, SetError, Wish};
use crate::knob::{Knob, KnobError, Placement, on_or_off};
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

/// For how long an application wants its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// As long as [`Placed`] lives, at most as long as the process.
    Dropped,
    /// Until a user restores the old values (`fanpcap tune --restore`).
    Restored,
}

/// The settings that an application made on a device. Dropping it undoes them. If the process may
/// no longer do that, the next process that opens the journal does.
#[derive(Debug)]
pub struct Placed {
    device: Device,
    hold: Option<Hold>,
}

/// Why a device can't be set as an application wants it. Then nothing is changed.
#[derive(Debug)]
pub enum PlaceError {
    /// There is no such device.
    Device(NoDevice),
    /// The journal can't be used.
    Journal(JournalError),
    /// The device or its driver can't have the wanted value.
    Knob {
        /// The index of the want.
        want: usize,
        /// Why.
        error: KnobError,
    },
    /// Another process wants another value.
    Disagrees {
        /// The index of the want.
        want: usize,
        /// The other process.
        pid: u32,
        /// The value that it wants.
        value: String,
    },
}

/// First undoes changes of processes that have died. Then sets `wants` on a device, in this order.
/// Does not touch settings that have the wanted value.
///
/// # Errors
/// [`PlaceError`].
pub fn place(device: &str, wants: &[Want], until: Until) -> Result<Placed, PlaceError> {
    let device = Device::open(device).map_err(PlaceError::Device)?;
    let mut journal = Journal::open(&device).map_err(PlaceError::Journal)?;
    // The changes of dead processes are reported by commands that look for them, such as 'fanpcap
    // tune'.
    let _ = journal.recover(&Placement(&device));
    let hold = journal.hold().map_err(PlaceError::Journal)?;
    let mut placing = Placing {
        device: &device,
        journal,
    };
    if let Err(error) = placing.all(wants, Wish::While(&hold)) {
        let _ = placing.journal.release(&Placement(&device), hold);
        return Err(error);
    }
    let hold = match until {
        Until::Dropped => Some(hold),
        Until::Restored => {
            let stays = placing.all(wants, Wish::Stays);
            // Undoes the changes that do not stay.
            let _ = placing.journal.release(&Placement(&device), hold);
            stays?;
            None
        }
    };
    drop(placing);
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

/// The wants that are being set.
struct Placing<'a> {
    device: &'a Device,
    journal: Journal,
}

impl Placing<'_> {
    fn all(&mut self, wants: &[Want], wish: Wish<'_>) -> Result<(), PlaceError> {
        for (at, want) in wants.iter().enumerate() {
            let knobs = self.knobs(want);
            let knobs = knobs.map_err(|error| PlaceError::Knob { want: at, error })?;
            for (knob, value) in knobs {
                let set = self
                    .journal
                    .set(&Placement(self.device), wish, &knob, &value);
                set.map_err(|error| failed(at, error))?;
            }
        }
        Ok(())
    }

    /// The settings for a want, with their values.
    fn knobs(&self, want: &Want) -> Result<Vec<(Knob, String)>, KnobError> {
        Ok(match want {
            Want::Channels(wanted) => {
                let to = channels::with(channels::read(self.device)?, *wanted)?;
                vec![(Knob::Channels, channels::text(to))]
            }
            Want::Receiving(count) => {
                let [.., combined] = channels::read(self.device)?.most;
                let kind = if combined > 0 { "combined" } else { "rx" };
                vec![(Knob::Channels, format!("{kind}={count}"))]
            }
            Want::Irq { channel, cpus } => {
                let interrupts = interrupts::of_channel(self.device, *channel)?;
                let value = cpu::list_text(cpus);
                let knob = |it: interrupts::Interrupt| (Knob::Irq(it.number), value.clone());
                interrupts.into_iter().map(knob).collect()
            }
            Want::Napi { queue, cpu } => {
                let own = (Knob::Napi(*queue), cpu.to_string());
                match napi::is_threaded(self.device)? {
                    true => vec![own],
                    false => vec![(Knob::Threaded, on_or_off(true).to_owned()), own],
                }
            }
        })
    }
}

fn failed(want: usize, error: SetError) -> PlaceError {
    match error {
        SetError::Journal(error) => PlaceError::Journal(error),
        SetError::Knob(error) => PlaceError::Knob { want, error },
        SetError::Disagrees { pid, value } => PlaceError::Disagrees { want, pid, value },
    }
}

impl PlaceError {
    /// The index of the want that failed, if one did.
    pub fn want(&self) -> Option<usize> {
        match self {
            Self::Device(_) | Self::Journal(_) => None,
            Self::Knob { want, .. } | Self::Disagrees { want, .. } => Some(*want),
        }
    }

    /// The number for errno.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Device(error) => error.errno(),
            Self::Journal(error) => error.errno(),
            Self::Knob { error, .. } => error.errno(),
            Self::Disagrees { .. } => EBUSY,
        }
    }
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => error.fmt(f),
            Self::Journal(error) => error.fmt(f),
            Self::Knob { error, .. } => error.fmt(f),
            Self::Disagrees { pid, value, .. } => {
                write!(f, "process {pid} wants {value} of it meanwhile")
            }
        }
    }
}

impl std::error::Error for PlaceError {}

const EBUSY: i32 = 16;
