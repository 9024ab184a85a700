//! A capture for another command, in threads that share the packets. The command sees each packet.

use std::time::Duration;

use anyhow::Result;
use fanpcap_nic::cpus::Pinning;
use fanpcap_pcap::Handle;

use super::{Arguments, open, session};
use crate::{Counts, Each, Rest};

/// What to capture.
#[derive(Clone, Debug)]
pub struct Task {
    /// The device.
    pub device: String,
    /// The number of threads.
    pub threads: u16,
    /// The group; `None` for a new one.
    pub group: Option<u16>,
    /// The mode; `None` for the mode of the settings.
    pub fanout: Option<String>,
    /// How long to capture after the last handle is open.
    pub time: Duration,
}

/// The result of a capture.
#[derive(Clone, Debug, Default)]
pub struct Witnessed {
    /// The threads, in order.
    pub members: Vec<Member>,
    /// Packets that the device received, and packets that it dropped for lack of room.
    pub device: Option<(u64, u64)>,
}

/// The figures of a thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Member {
    /// Packets that the kernel received for the thread.
    pub received: u64,
    /// Packets given to the thread.
    pub captured: u64,
    /// Packets that the thread's ring had no room for.
    pub dropped: u64,
    /// Packets that are still in the thread's ring.
    pub unread: u64,
    /// Packets that no counter explains.
    pub unexplained: u64,
}

/// Bytes kept of each packet: all headers, including those inside a tunnel.
const SNAPLEN: i32 = 256;

/// Captures. `witness` returns the callback for each thread's packets, once its handle is open.
///
/// # Errors
/// The library can't be loaded, or a handle can't be opened or read; or the error of `witness`.
pub fn witnessed(
    task: &Task,
    witness: &mut dyn FnMut(&Handle) -> Result<Each>,
) -> Result<Witnessed> {
    let library = open(None)?;
    let arguments = arguments(task);
    let mut witness = |handle: &Handle| witness(handle).map(Some);
    let captured = session::capture(&arguments, &library, &mut witness)?;
    let mut members = Vec::new();
    for done in captured.done {
        if let Some(error) = done.failed {
            return Err(error);
        }
        members.push(Member::of(&done.counts));
    }
    Ok(Witnessed {
        members,
        device: captured.link.map(|link| (link.received, link.dropped)),
    })
}

fn arguments(task: &Task) -> Arguments {
    Arguments {
        interface: Some(task.device.clone()),
        read: None,
        threads: task.threads,
        cpus: Pinning::None,
        fanout: task.fanout.clone(),
        group: task.group,
        snaplen: SNAPLEN,
        buffer: None,
        timeout: 100,
        immediate: false,
        no_promisc: false,
        count: None,
        seconds: Some(task.time),
        work: 0,
        write: None,
        json: false,
        quiet: true,
        library: None,
        filter: Vec::new(),
        is_apart: true,
    }
}

impl Member {
    fn of(counts: &Counts) -> Self {
        let kernel = counts.kernel.unwrap_or_default();
        let Rest { late, unread, off } = counts.rest().unwrap_or_default();
        Self {
            received: kernel.received,
            captured: counts.captured,
            dropped: kernel.dropped,
            unread,
            unexplained: late + off,
        }
    }
}
