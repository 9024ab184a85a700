//! Members of classes, and packets for classes.

use super::World;
use crate::slots::classes::LEFT_NS;
use std::sync::atomic::Ordering;

impl World {
    /// A group with classes, to which packets come in turn.
    pub(in super::super) fn with_classes(seed: u64) -> Self {
        let mut world = Self::with_rings(seed);
        world.kernel.classes = vec![0, 2, 63];
        world
    }

    /// A new socket of a member of a class.
    pub(in super::super) fn open_in(&mut self, class: u8) -> u64 {
        let cookie = self.open();
        self.of_class.insert(cookie, class);
        cookie
    }

    /// Gives a new socket a class, in a group that has classes.
    pub(in super::super) fn set_class(&mut self, cookie: u64, class: u8) {
        if !self.kernel.classes.is_empty() {
            self.of_class.insert(cookie, class);
        }
    }

    pub(in super::super) fn now_ns(&self) -> u64 {
        use crate::slots::KernelOps;
        self.kernel.now_ns()
    }

    /// Gives a new socket one of the group's classes.
    pub(super) fn draw_class(&mut self, cookie: u64) {
        let count = self.kernel.classes.len();
        if count > 0 {
            let which = self.kernel.random(u64::try_from(count).unwrap());
            let class = self.kernel.classes[usize::try_from(which).unwrap()];
            self.of_class.insert(cookie, class);
        }
    }

    pub(in super::super) fn class(&self, cookie: u64) -> u8 {
        self.of_class.get(&cookie).copied().unwrap_or(0)
    }

    /// The sockets that get the packets of each bucket of a class.
    pub(in super::super) fn owners_in(&self, class: u8) -> Vec<u64> {
        let buckets = self.table().part(class).buckets.iter();
        let slots = buckets.map(|it| it.load(Ordering::Relaxed));
        slots.map(|slot| self.in_slot(slot)).collect()
    }

    /// The member that gets a packet; `None` if its class has no members.
    pub(super) fn owner_of_packet(&self, number: u64, bucket: usize) -> Option<u64> {
        let classes = &self.kernel.classes;
        let Some(which) = number.checked_rem(classes.len() as u64) else {
            return Some(self.owner(bucket));
        };
        let part = self.table().part(classes[usize::try_from(which).unwrap()]);
        let slot = part.buckets[bucket].load(Ordering::Relaxed);
        part.has_ranks().then(|| self.in_slot(slot))
    }

    /// One member of each class looks after the group. Then sometimes so much time passes that next
    /// time members of other classes may look after the dead members, too.
    pub(super) fn attend_classes(&mut self) {
        let mut seen = Vec::new();
        for member in self.members() {
            let class = self.class(member);
            if !seen.contains(&class) {
                seen.push(class);
                self.attend(member);
            }
        }
        if self.kernel.random(4) == 0 {
            self.idle(LEFT_NS);
        }
    }

    /// Gives up a ring, which no member reads. Returns 0, because no packet is taken over.
    pub(super) fn give_up(&mut self, cookie: u64) -> u64 {
        if let Some(socket) = self.kernel.sockets.get_mut(&cookie) {
            self.kernel.unread += socket.ring.drain(..).count() as u64;
        }
        0
    }

    /// Packets for classes without members, and packets that were unread when a class lost its last
    /// member.
    pub(in super::super) fn lost(&self) -> [u64; 2] {
        [self.kernel.no_member, self.kernel.unread]
    }
}
