//! A capture for another command, in threads that share the packets. The command gets each packet
//! by a callback.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Command, FromArgMatches};
use fanpcap_pcap::Handle;

use super::{Arguments, open, session};
use crate::{Counts, Each};

/// The device, threads, group, mode and time of a capture.
#[derive(Clone, Debug)]
pub struct Task {
    /// The device.
    pub device: String,
    /// The number of threads.
    pub threads: u16,
    /// The group; `None` for a new group.
    pub group: Option<u16>,
    /// The mode; `None` for the mode of the settings.
    pub fanout: Option<String>,
    /// The time to capture after the last handle is open.
    pub time: Duration,
}

/// The result of the capture of a [`Task`].
#[derive(Clone, Debug, Default)]
pub struct Witnessed {
    /// The counters of the threads, in order.
    pub members: Vec<Counts>,
    /// Packets that the device received, and packets that it dropped for lack of room.
    pub device: Option<(u64, u64)>,
}

/// Bytes kept of each packet: all headers, including those inside a tunnel.
const SNAPLEN: i32 = 256;

/// Captures as `task` says. When a thread's handle is open, calls `witness`, which returns the
/// callback for the thread's packets.
///
/// # Errors
/// The library can't be loaded, a handle can't be opened or read, or `witness` fails.
pub fn witnessed(
    task: &Task,
    witness: &mut dyn FnMut(&Handle) -> Result<Each>,
) -> Result<Witnessed> {
    let library = open(None)?;
    let arguments = arguments(task)?;
    let mut witness = |handle: &Handle| witness(handle).map(Some);
    let captured = session::capture(&arguments, &library, &mut witness)?;
    let mut members = Vec::new();
    for done in captured.done {
        if let Some(error) = done.failed {
            return Err(error);
        }
        members.push(done.counts);
    }
    Ok(Witnessed {
        members,
        device: captured.link.map(|link| (link.received, link.dropped)),
    })
}

/// The arguments of `fanpcap capture` for a task.
fn arguments(task: &Task) -> Result<Arguments> {
    let command = Arguments::augment_args(Command::new("capture"));
    let device = format!("--interface={}", task.device);
    let words = ["capture", "--quiet", &device];
    let mut arguments = Arguments::from_arg_matches(&command.try_get_matches_from(words)?)?;
    arguments.threads = task.threads;
    arguments.fanout.clone_from(&task.fanout);
    arguments.group = task.group;
    arguments.snaplen = SNAPLEN;
    arguments.seconds = Some(task.time);
    arguments.is_apart = true;
    Ok(arguments)
}
