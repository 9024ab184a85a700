//! Sends the active coordinator's frames into the monitored link.

use std::io;

use fanpcap_cluster::View;
use fanpcap_cluster::control::stream::{Due, Numbers, Sender};
use fanpcap_linux::packet::inject::Injector;
use fanpcap_linux::wait::clock;
use fanpcap_select::in_line::InLine;

use crate::frames;

/// Sends frames on a device.
#[derive(Debug)]
pub(super) struct Beacons {
    core: Sender,
    device: String,
    cluster: u32,
    port: Option<Injector>,
    /// How it went last; `None` before the first frame.
    works: Option<bool>,
}

impl Beacons {
    /// Frames of this cluster on a device, which need not be there yet.
    pub(super) fn new(device: &str, cluster: u32, numbers: Numbers) -> Self {
        Self {
            core: Sender::new(numbers),
            device: device.to_owned(),
            cluster,
            port: None,
            works: None,
        }
    }

    /// Sends what is due. Returns what an operator should know, once.
    pub(super) fn tick(&mut self, view: &View) -> Option<String> {
        let due = self.core.due(view, frames::now());
        if due.is_empty() {
            return None;
        }
        let sent = due.iter().try_for_each(|due| self.send(due));
        if sent.is_err() {
            self.port = None;
        }
        let is_new = self.works.replace(sent.is_ok()) != Some(sent.is_ok());
        let device = &self.device;
        let line = match sent {
            Ok(()) => format!("beacons go out on {device}"),
            Err(error) => format!("no beacons on {device}: {error}; trying again each second"),
        };
        is_new.then_some(line)
    }

    fn send(&mut self, due: &Due) -> io::Result<()> {
        let port = match self.port.take() {
            Some(port) => port,
            None => Injector::open(&self.device)?,
        };
        let frame = InLine {
            kind: due.kind,
            cluster: self.cluster,
            sequence: due.sequence,
            time_ns: clock::tai_ns(),
            number: due.number,
        };
        self.port.insert(port).send(&frame.encode(BROADCAST, OWN))
    }
}

/// Every switch passes it on.
const BROADCAST: [u8; 6] = [0xff; 6];

/// A locally administered address. The device's own would move in the switch's table when another
/// coordinator takes over.
const OWN: [u8; 6] = [0x02, b'f', b'a', b'n', 0, 1];
