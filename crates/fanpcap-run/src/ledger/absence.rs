//! Absences: times without a copy in the group. No copy got the packets that a device received in
//! these times.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;

/// All absences together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Absent {
    /// Number of absences.
    pub(crate) times: u32,
    /// The total length of the absences.
    pub(crate) seconds: f64,
    /// Packets that the devices received in this time; `None` if a device's counters are unknown.
    pub(crate) packets: Option<u64>,
}

/// The absences, kept separately for each device.
#[derive(Debug, Default)]
pub(super) struct Absences {
    /// Devices on which no copy is in the group. For each device, the time when the absence began,
    /// and the device's packet counter at that time.
    open: BTreeMap<u32, (Instant, Option<u64>)>,
    pub(super) sum: Absent,
    /// This command has sent the copies a signal to end, so an empty group is intended.
    pub(super) is_over: bool,
}

impl Default for Absent {
    fn default() -> Self {
        Self {
            times: 0,
            seconds: 0.0,
            packets: Some(0),
        }
    }
}

impl Absent {
    /// The number of absences and their length, in words.
    pub(crate) fn spans(&self) -> String {
        match self.times {
            1 => format!("once, for {:.2} s", self.seconds),
            times => format!("{times} times, {:.2} s together", self.seconds),
        }
    }
}

impl Absences {
    /// Begins an absence: the last copy has left the group on this device. `counted` is the
    /// device's packet counter at that time.
    pub(super) fn begin(&mut self, ifindex: u32, counted: Option<u64>) {
        if !self.is_over {
            self.open
                .entry(ifindex)
                .or_insert((Instant::now(), counted));
        }
    }

    /// Ends the absence on a device, and returns a message about the absence. `counted` is the
    /// device's packet counter when a copy joined. If the device with this index is `gone`,
    /// `counted` is the counter of the device that now has this name: it began with 0.
    pub(super) fn end(
        &mut self,
        ifindex: u32,
        counted: Option<u64>,
        gone: Option<&str>,
    ) -> Option<String> {
        let (since, before) = self.open.remove(&ifindex)?;
        let before = gone.map_or(before, |_| Some(0));
        let packets = counted
            .zip(before)
            .map(|(counted, before)| counted.saturating_sub(before));
        let seconds = since.elapsed().as_secs_f64();
        self.sum.times += 1;
        self.sum.seconds += seconds;
        self.sum.packets = self.sum.packets.zip(packets).map(|(sum, more)| sum + more);
        let packets = packets.map_or("an unknown number of".to_owned(), |it| it.to_string());
        let gone = gone.map(|device| format!(", because {device} was gone"));
        let gone = gone.unwrap_or_default();
        Some(format!(
            "no copy was in the group for {seconds:.2} s{gone}: {packets} packets came to the device in this time, and no copy got them"
        ))
    }

    /// Devices on which no copy is in the group.
    pub(super) fn devices(&self) -> Vec<u32> {
        self.open.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_while_no_copy_was_there_is_added_up() {
        let mut absences = Absences::default();
        assert_eq!(absences.end(1, Some(5), None), None);
        absences.begin(1, Some(10));
        absences.begin(1, Some(11));
        absences.begin(2, Some(70));
        assert_eq!(absences.devices(), [1, 2]);
        let said = absences.end(1, Some(25), None).unwrap();
        assert!(said.contains(" s: 15 packets came to the device"), "{said}");
        absences.end(2, Some(70), None).unwrap();
        assert_eq!((absences.sum.times, absences.sum.packets), (2, Some(15)));
        absences.begin(1, None);
        let said = absences.end(1, Some(25), None).unwrap();
        assert!(said.contains("an unknown number of packets"), "{said}");
        assert_eq!(absences.sum.packets, None);
        absences.begin(3, None);
        let said = absences.end(3, Some(4), Some("eth7")).unwrap();
        assert!(
            said.contains(", because eth7 was gone: 4 packets"),
            "{said}"
        );
        absences.is_over = true;
        absences.begin(1, Some(5));
        assert!(absences.devices().is_empty());
    }
}
