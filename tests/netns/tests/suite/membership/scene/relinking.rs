//! Sets devices of a scene down and up.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use fanpcap_netns::{DEVICE, FAR_DEVICE};
use fanpcap_testkit::veth;

use super::super::load::{Load, print};
use super::super::wires;
use super::{ON_XDP, Scene};

/// The time that a device is down.
const DOWN: Duration = Duration::from_millis(50);

impl Scene<'_> {
    /// One of two devices goes down and up. Each bucket's owner must be the same socket as before.
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
        self.renumber(&slots);
        load.go_on(self.device)?;
        self.note_nothing(&format!("{device} was down"), self.phases.len());
        Ok(())
    }

    /// The device goes down, gets another name, and comes up again. The kernel links the group's
    /// sockets again, in the order in which their members joined. Each bucket's owner must be the
    /// same socket as before. Returns how many members have another slot.
    pub(in super::super) fn relink(
        &mut self,
        load: &mut Load,
        name: &'static str,
    ) -> Result<usize> {
        load.pause()?;
        let slots = self.slots_by_age();
        let expected = self.owners.renumbered(&slots);
        veth::ip(&format!("link set {} down", self.device))?;
        let down = Instant::now();
        if name != self.device {
            veth::ip(&format!("link set {} name {name}", self.device))?;
            self.device = name;
        }
        let mut noticed = None;
        while down.elapsed() < DOWN {
            let is_done = self.table.owners() == expected;
            noticed = noticed.or(is_done.then(|| down.elapsed()));
            thread::sleep(Duration::from_millis(1));
        }
        veth::ip(&format!("link set {name} up"))?;
        [FAR_DEVICE, name]
            .into_iter()
            .try_for_each(veth::await_up)?;
        self.await_move("the slots' new numbers", |owners| *owners == expected)?;
        self.renumber(&slots);
        load.go_on(name)?;
        print(&format!("slots {slots:?} while down after {noticed:?}"));
        self.note_nothing("the device was down", self.phases.len());
        Ok(slots.iter().filter(|(old, new)| old != new).count())
    }

    /// The device goes down and up while all members are stopped. A newcomer joins before the
    /// members continue, and numbers the slots. The newcomer takes its share from members whose
    /// sockets have new positions.
    pub(in super::super) fn relink_asleep(&mut self, load: &mut Load) -> Result<()> {
        load.pause()?;
        let slots = self.slots_by_age();
        self.owners = self.owners.renumbered(&slots);
        self.signal("STOP")?;
        veth::ip(&format!("link set {} down", self.device))?;
        veth::ip(&format!("link set {} up", self.device))?;
        [FAR_DEVICE, self.device]
            .into_iter()
            .try_for_each(veth::await_up)?;
        self.renumber(&slots);
        self.join()?;
        self.signal("CONT")?;
        load.go_on(self.device)
    }

    fn signal(&self, name: &str) -> Result<()> {
        let mut members = self.members.iter().filter(|it| it.reads());
        members.try_for_each(|it| it.signal(name))
    }

    /// The number that each slot gets when the kernel links the sockets in the order in which their
    /// members joined. The socket of an ended member stays until another member takes its slot, or
    /// until no later slot has a member. On XDP all slots keep their numbers.
    fn slots_by_age(&self) -> BTreeMap<u8, u8> {
        let ages = self.members.iter().enumerate();
        let holders: BTreeMap<u8, usize> =
            ages.filter_map(|(age, it)| Some((it.slot?, age))).collect();
        let last = self.owners.shares().keys().last().copied();
        let mut ages: Vec<(usize, u8)> =
            holders.into_iter().map(|(slot, age)| (age, slot)).collect();
        ages.retain(|(_, slot)| Some(*slot) <= last);
        ages.sort_unstable();
        let slots = ages.into_iter().map(|(_, slot)| slot);
        if self.how.contains(&ON_XDP) {
            return slots.map(|slot| (slot, slot)).collect();
        }
        slots.zip(0..).collect()
    }

    fn renumber(&mut self, slots: &BTreeMap<u8, u8>) {
        for member in &mut self.members {
            let new = member.slot.and_then(|slot| slots.get(&slot));
            member.slot = new.copied();
        }
    }
}
