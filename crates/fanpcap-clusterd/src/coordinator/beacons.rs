//! Sends the active coordinator's beacons and updates into the monitored link.

use std::io;

use fanpcap_cluster::View;
use fanpcap_cluster::control::stream::{DueFrame, FrameNumbers, FrameSender, SILENCE};
use fanpcap_linux::packet::inject::Injector;
use fanpcap_linux::wait::clock;
use fanpcap_select::in_line::InLine;

/// Sends the coordinator's frames on a device.
#[derive(Debug)]
pub(super) struct Beacons {
    pub(super) core: FrameSender,
    device: String,
    cluster: u32,
    port: Option<Injector>,
    /// Whether the last frame was sent; `None` before the first frame.
    works: Option<bool>,
}

impl Beacons {
    /// Prepares frames of this cluster for a device. The device need not exist yet.
    pub(super) fn new(device: &str, cluster: u32, numbers: FrameNumbers) -> Self {
        Self {
            core: FrameSender::new(numbers),
            device: device.to_owned(),
            cluster,
            port: None,
            works: None,
        }
    }

    /// Sends the frames that are due at `now`, in seconds since 1970. If sending begins to fail, or
    /// works again, returns a message to the operator.
    pub(super) fn tick(&mut self, view: &View, now: u64) -> Option<String> {
        let due = self.core.due(view, now);
        let late = Some(self.core.behind(now));
        let late = late.filter(|late| view.leads && *late > SILENCE.as_secs());
        if due.is_empty() && late.is_none() {
            return None;
        }
        let sent = due.iter().try_for_each(|due| self.send(due));
        if sent.is_err() {
            self.port = None;
        }
        let trouble = match (sent, late) {
            (Err(error), _) => Some(format!("{error}; trying again each second")),
            (Ok(()), Some(late)) => Some(format!(
                "the clock was set back, so the next beacon is sent in {late} s; correct the \
                 clock, or restart the coordinator if the clock is right now"
            )),
            (Ok(()), None) => None,
        };
        let is_new = self.works.replace(trouble.is_none()) != Some(trouble.is_none());
        let device = &self.device;
        let line = match trouble {
            None => format!("beacons go out on {device}"),
            Some(why) => format!("no beacons on {device}: {why}"),
        };
        is_new.then_some(line)
    }

    fn send(&mut self, due: &DueFrame) -> io::Result<()> {
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

/// The broadcast address: every switch forwards the frames.
const BROADCAST: [u8; 6] = [0xff; 6];

/// The source of the frames: a locally administered address, the same for all coordinators.
const OWN: [u8; 6] = [0x02, b'f', b'a', b'n', 0, 1];

#[cfg(test)]
mod tests {
    use fanpcap_cluster::control::ClusterId;

    use super::*;

    #[test]
    fn who_falls_silent_says_why_once() {
        let numbers = FrameNumbers::new(vec![1; 32], ClusterId::of_name("lab"));
        let mut beacons = Beacons::new("absent0", 1, numbers);
        let mut view = View {
            leads: true,
            ..View::default()
        };
        let said = beacons.tick(&view, 1000).unwrap();
        assert!(said.starts_with("no beacons on absent0: "), "{said}");
        // The test pretends that the last frame was sent.
        beacons.works = Some(true);
        assert_eq!(beacons.tick(&view, 999), None, "that is nothing");
        view.leads = false;
        assert_eq!(
            beacons.tick(&view, 400),
            None,
            "no node waits for a standby's beacons"
        );
        view.leads = true;
        let said = beacons.tick(&view, 400).unwrap();
        assert!(
            said.contains("set back") && said.contains("600 s"),
            "{said}"
        );
        assert_eq!(beacons.tick(&view, 401), None);
    }
}
