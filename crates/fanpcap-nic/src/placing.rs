//! Channels, interrupts and polling threads as an application wants them: all of it is set, or
//! nothing, and undone when the application wants it no more.

use crate::channels;
use crate::device::{Device, NoDevice};
use crate::interrupts;
use crate::journal::{Hold, Journal, JournalError, SetError, Wish};
use crate::knob::{Knob, KnobError, Placement, on_or_off};
use crate::napi;
use fanpcap_linux::process::cpu;
use std::fmt;

/// Something that an application wants of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// Numbers of channels, by kind.
    Channels(channels::Wanted),
    /// A number of channels of the kind that receives on this device.
    Receiving(u32),
    /// The CPUs of a channel's interrupts.
    Irq {
        /// The channel.
        channel: u32,
        /// The CPUs.
        cpus: Vec<usize>,
    },
    /// The CPU of the thread that polls a receive queue. Threads poll the device's queues then.
    Napi {
        /// The queue.
        queue: u32,
        /// The CPU.
        cpu: usize,
    },
}

/// For how long an application wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// As long as [`Placed`] lives, or the process, if that ends before.
    Dropped,
    /// Until somebody asks for the old values (`fanpcap tune --restore`).
    Restored,
}

/// What an application has of a device; dropped, it is undone. A process that may not do that any
/// more leaves it to the next one that opens the journal.
#[derive(Debug)]
pub struct Placed {
    device: Device,
    hold: Option<Hold>,
}

/// Why a device can't be set as an application wants it. Nothing is changed then.
#[derive(Debug)]
pub enum PlaceError {
    /// There is no such device.
    Device(NoDevice),
    /// The journal can't be used.
    Journal(JournalError),
    /// The device or its driver can't have what was wanted.
    Knob {
        /// Which of the wants.
        want: usize,
        /// Why.
        error: KnobError,
    },
    /// Another process wants something else.
    Disagrees {
        /// Which of the wants.
        want: usize,
        /// That process.
        pid: u32,
        /// The value that it wants.
        value: String,
    },
}

/// Sets what is wanted of a device, in this order. What the device has already is not touched.
/// Changes of processes that have died are undone before.
///
/// # Errors
/// [`PlaceError`].
pub fn place(device: &str, wants: &[Want], until: Until) -> Result<Placed, PlaceError> {
    let device = Device::open(device).map_err(PlaceError::Device)?;
    let mut journal = Journal::open(&device).map_err(PlaceError::Journal)?;
    // What the dead have left is reported by who looks for it, such as 'fanpcap tune'.
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
            // Undoes what does not stay.
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
        // A forked child has a copy, and puts nothing back.
        let Some(hold) = self.hold.take().filter(Hold::is_own) else {
            return;
        };
        // Without the journal the next process that opens it does this.
        if let Ok(mut journal) = Journal::open(&self.device) {
            let _ = journal.release(&Placement(&self.device), hold);
        }
    }
}

/// Wants that are being set.
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

    /// The settings that a want consists of, with their values.
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
    /// Which of the wants is to blame, if it is one.
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
