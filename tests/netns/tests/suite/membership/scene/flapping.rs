//! One of two devices of a group goes down and up.

use anyhow::Result;
use fanpcap_netns::DEVICE;

use super::super::load::Load;
use super::super::wires;
use super::{DOWN, Scene};

impl Scene<'_> {
    /// One of two devices goes down and up: each bucket's owner is the same socket as before.
    pub(in super::super) fn flap(&mut self, load: &mut Load, device: &str) -> Result<()> {
        load.pause()?;
        let same = self.owners.shares().into_keys().map(|slot| (slot, slot));
        let slots = match device == DEVICE {
            true => self.slots_by_age(),
            false => same.collect(),
        };
        let expected = self.owners.renumbered(&slots);
        wires::flap(device, DOWN)?;
        self.await_move("the slots' new numbers", |owners| *owners == expected)?;
        for member in &mut self.members {
            let new = member.slot.and_then(|slot| slots.get(&slot));
            member.slot = new.copied();
        }
        load.go_on(self.device)?;
        self.note_nothing(&format!("{device} was down"), self.phases.len());
        Ok(())
    }
}
