//! The slots of a capture's threads in a steered group.

use std::process;

use fanpcap_snapshot::{Snapshot, Socket, Source};
use serde::Serialize;

/// A slot of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Slot {
    /// The slot's number.
    pub(super) slot: u8,
    /// Buckets that the slot owns.
    pub(super) buckets: usize,
    /// The class of these buckets; 0 is the default class.
    pub(super) class: u8,
}

/// This process's slots in a group of a device, in order; `None` for a group without a table, or if
/// the table can't be read.
pub(super) fn own(device: &str, group: u16) -> Option<Vec<Slot>> {
    let snapshot = Source::new(Some(device)).ok()?.take().ok()?;
    of(&snapshot, group, process::id())
}

fn of(snapshot: &Snapshot, group: u16, pid: u32) -> Option<Vec<Slot>> {
    let is_own = |socket: &&Socket| {
        let is_in = socket.group.as_ref().is_some_and(|it| it.number == group);
        let process = socket.process.as_ref();
        is_in && process.is_some_and(|it| it.pid == Some(pid))
    };
    let places = snapshot.sockets.iter().filter(is_own);
    let places = places.filter_map(|socket| socket.place);
    let mut slots: Vec<Slot> = places
        .map(|place| Slot {
            slot: place.slot,
            buckets: place.buckets,
            class: place.class,
        })
        .collect();
    slots.sort_by_key(|slot| slot.slot);
    (!slots.is_empty()).then_some(slots)
}

/// The slots as a line of text.
pub(super) fn line(slots: &[Slot]) -> String {
    let named = |it: &Slot| match it.class {
        0 => format!("{} with {} buckets", it.slot, it.buckets),
        class => format!("{} with {} buckets of class {class}", it.slot, it.buckets),
    };
    let named: Vec<String> = slots.iter().map(named).collect();
    let plural = if slots.len() == 1 { "" } else { "s" };
    format!("slot{plural} of this capture: {}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_snapshot::fixture;

    #[test]
    fn the_slots_are_those_of_this_process_and_group() {
        let mut snapshot = fixture::after();
        snapshot.sockets[0].place = snapshot.sockets[0].place.map(|mut place| {
            place.class = 2;
            place
        });
        let slots = of(&snapshot, 7, 4711).unwrap();
        assert_eq!(
            line(&slots),
            "slot of this capture: 0 with 2048 buckets of class 2"
        );
        assert_eq!(of(&snapshot, 7, 4712), None);
        assert_eq!(of(&snapshot, 42, 4711), None);
        let two = [
            slots[0],
            Slot {
                slot: 3,
                buckets: 1365,
                class: 0,
            },
        ];
        assert_eq!(
            line(&two),
            "slots of this capture: 0 with 2048 buckets of class 2, 3 with 1365 buckets"
        );
    }
}
