//! Random events: members join, read, leave and die.

use super::World;
use std::collections::BTreeMap;

impl World {
    pub(in super::super) fn live(&mut self, events: u32) {
        for _ in 0..events {
            self.send(20);
            self.may_settle_by_founder();
            let kill = match self.kernel.random(4) {
                0 => self.kernel.random(60),
                _ => u64::MAX,
            };
            let event = self.kernel.random(11);
            let members = self.members();
            if members.is_empty() || (event < 2 && members.len() < 12) {
                let newcomer = match self.kernel.random(4) {
                    0 => self.open(),
                    name => self.open_named(name),
                };
                self.draw_class(newcomer);
                // Other newcomers may have claimed the first slots and never come.
                let claimed = self.claimed();
                let join = |world: &mut Self| {
                    let slot = world.choose(newcomer, &claimed);
                    _ = world.join_at(newcomer, slot.unwrap()).unwrap();
                };
                _ = self.dying(newcomer, kill, join);
            } else {
                let count = u64::try_from(members.len()).unwrap();
                let which = usize::try_from(self.kernel.random(count)).unwrap();
                self.act(members[which], event, kill);
            }
            // Before packets come, complete any renumbering in which a member was killed, and any
            // work that no member has noticed.
            let first = self.members().first().copied();
            if let Some(member) = self.kernel.rings.is_none().then_some(first).flatten() {
                self.attend(member);
            } else {
                self.repair_by_founder();
                self.attend_classes();
            }
        }
    }

    fn act(&mut self, member: u64, event: u64, kill: u64) {
        let most = usize::try_from(self.kernel.random(30)).unwrap();
        _ = self.dying(member, kill, |world| match event {
            2 => world.close(member),
            3 => world.depart(member),
            4 => {
                world.flap_once();
                world.hear(member);
            }
            8 => {
                world.flap_once();
                let newcomer = world.open();
                _ = world.join(newcomer);
            }
            9 => world.hear(member),
            5 => world.begin_share(member),
            6 => _ = world.take(member, most),
            10 => _ = world.weigh(member, member, u16::from(most > 10)),
            _ => {
                world.begin_share(member);
                world.look_for_silent(member);
                world.attend(member);
                world.count_at_random();
                world.level(member);
                world.settle_own(member);
            }
        });
    }

    /// Makes this member read to the end the rings that it has taken over.
    fn settle_own(&mut self, taker: u64) {
        let own = self.takers.iter().filter(|(_, it)| **it == taker);
        let own: BTreeMap<u64, u64> = own.map(|(cookie, it)| (*cookie, *it)).collect();
        self.settle(own);
    }
}
