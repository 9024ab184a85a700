//! One group over two devices. Members have a socket on each device, and the second kernel group
//! follows the first.

use super::world::{Killed, World};

use crate::slots::classes::LEFT_NS;
use crate::slots::succession::GRACE_NS;

#[derive(Clone)]
struct Pair {
    lead: World,
    other: World,
}

/// What a member does in a group.
type Act = fn(&mut World, u64);

const JOIN: Act = |world, own| _ = world.join(own).unwrap();
const LEAVE: Act = World::depart;
const LOOK: Act = |world, own| {
    world.begin_share(own);
    world.follow(own);
    world.attend(own);
};

impl Pair {
    fn new(seed: u64) -> Self {
        let (lead, other) = (World::new(seed), World::new(seed));
        Self { lead, other }
    }

    /// A pair with this many members, all with their share.
    fn of(members: usize) -> Self {
        let mut pair = Self::new(7);
        for _ in 0..members {
            let member = pair.open();
            pair.act(member, JOIN, u64::MAX).unwrap();
            pair.act(member, LOOK, u64::MAX).unwrap();
        }
        pair
    }

    fn open(&mut self) -> u64 {
        let cookie = self.lead.open();
        assert_eq!(self.other.open(), cookie);
        cookie
    }

    /// A member acts in both groups, and is killed after this many steps.
    fn act(&mut self, member: u64, act: Act, kill: u64) -> Result<(), Killed> {
        let steps = self.lead.dying(member, kill, |lead| act(lead, member));
        self.other.behind(&self.lead);
        let left = match steps {
            Ok(left) => left,
            Err(killed) => {
                self.other.close(member);
                return Err(killed);
            }
        };
        let steps = self.other.dying(member, left, |other| act(other, member));
        steps.map(drop).inspect_err(|_| self.lead.close(member))
    }

    fn close(&mut self, member: u64) {
        self.lead.close(member);
        self.other.close(member);
    }

    fn idle(&mut self, ns: u64) {
        self.lead.idle(ns);
        self.other.idle(ns);
    }

    /// Members join and take their shares, one after the other. The name 0 means no name.
    fn come<const N: usize>(&mut self, names: [u64; N]) -> [u64; N] {
        names.map(|name| {
            self.idle(1_000_000);
            let member = match name {
                0 => self.open(),
                name => {
                    let member = self.lead.open_named(name);
                    assert_eq!(self.other.open_named(name), member);
                    member
                }
            };
            self.act(member, JOIN, u64::MAX).unwrap();
            self.act(member, LOOK, u64::MAX).unwrap();
            member
        })
    }

    fn send(&mut self) {
        self.lead.send(20);
        self.other.send(20);
    }

    /// All members look after both groups.
    fn recover(&mut self) {
        for member in self.lead.members() {
            self.act(member, LOOK, u64::MAX).unwrap();
        }
    }

    /// Checks that one member has both directions of each flow, and that each group is consistent.
    fn check(&self) {
        self.lead.check();
        self.other.check();
        assert_eq!(
            self.lead.members().is_empty(),
            self.other.members().is_empty()
        );
        if !self.lead.members().is_empty() {
            assert!(self.lead.owners() == self.other.owners(), "flows are split");
            let ranks = [&self.lead, &self.other].map(World::ranks);
            assert_eq!(ranks[0], ranks[1]);
        }
    }

    fn check_ledger(&mut self) {
        for world in [&mut self.lead, &mut self.other] {
            world.settle_all();
            world.check_ledger();
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.lead.random(below)
    }

    fn live(&mut self) {
        let kill = match self.random(4) {
            0 => self.random(200),
            _ => u64::MAX,
        };
        let members = self.lead.members();
        let event = self.random(8);
        if members.is_empty() || (event < 2 && members.len() < 8) {
            let newcomer = self.open();
            _ = self.act(newcomer, JOIN, kill);
            return;
        }
        let which = self.random(members.len() as u64);
        let member = members[usize::try_from(which).unwrap()];
        match event {
            2 => self.close(member),
            3 => _ = self.act(member, LEAVE, kill),
            4 | 5 => self.flap(event == 4, member),
            _ => _ = self.act(member, LOOK, kill),
        }
    }

    /// One of the two devices goes down and up again.
    fn flap(&mut self, first: bool, member: u64) {
        let world = if first {
            &mut self.lead
        } else {
            &mut self.other
        };
        world.flap_once();
        world.hear(member);
    }
}

#[test]
fn a_flow_has_one_owner_on_both_devices_whoever_comes_and_goes() {
    let mut pair = Pair::of(4);
    pair.check();
    let newcomer = pair.open();
    pair.act(newcomer, JOIN, u64::MAX).unwrap();
    let before = pair.other.owners();
    pair.act(newcomer, LOOK, u64::MAX).unwrap();
    let after = pair.other.owners();
    let mut moved = before.iter().zip(&after).filter(|(a, b)| a != b);
    assert!(moved.all(|(_, to)| *to == newcomer));
    pair.check();
    pair.close(pair.lead.in_slot(0));
    pair.recover();
    pair.check();
}

#[test]
fn new_numbers_of_one_devices_slots_move_nothing() {
    let mut pair = Pair::of(5);
    pair.close(pair.lead.in_slot(1));
    pair.recover();
    pair.check_ledger();
    let newcomer = pair.open();
    pair.act(newcomer, JOIN, u64::MAX).unwrap();
    pair.recover();
    let before = pair.lead.owners();
    for first in [false, true] {
        pair.flap(first, newcomer);
        assert!(pair.lead.owners() == before && pair.other.owners() == before);
        pair.recover();
        assert!(pair.other.owners() == before);
        pair.check();
    }
}

/// The first of three members has taken over the second in the lead, but not yet in the other
/// group. The third has joined lately.
fn half_taken() -> (Pair, [u64; 3]) {
    let mut pair = Pair::new(7);
    let members = pair.come([0; 3]);
    pair.send();
    pair.close(members[1]);
    pair.lead.attend(members[0]);
    assert_eq!(pair.lead.taker_of(members[1]), Some(members[0]));
    pair.other.behind(&pair.lead);
    (pair, members)
}

/// A bucket of a dead member must not move before the member's ring is taken. Otherwise the new
/// owner would read later packets of a flow before the packets in the ring.
#[test]
fn who_follows_moves_no_dead_members_buckets_before_somebody_has_its_ring() {
    type Change = fn(&mut Pair, u64);
    let changes: [(&str, Change); 4] = [
        ("a look", |_, _| {}),
        ("a drain", |pair, late| {
            _ = pair.lead.weigh(0, late, 0);
            _ = pair.other.weigh(0, late, 0);
        }),
        ("a leave", |pair, late| _ = pair.act(late, LEAVE, u64::MAX)),
        ("a newcomer", |pair, _| _ = pair.come([0])),
    ];
    for (what, change) in changes {
        let (mut pair, [first, gone, late]) = half_taken();
        let its = |pair: &Pair| {
            let owners = pair.other.owners().into_iter();
            (0..).zip(owners).filter(|(_, it)| *it == gone).collect()
        };
        let (before, ranks): (Vec<(usize, u64)>, _) = (its(&pair), pair.other.ranks());
        assert!(before.len() > 1000 && ranks.contains(&gone));
        change(&mut pair, late);
        pair.other.behind(&pair.lead);
        for member in pair.other.members().into_iter().filter(|it| *it != first) {
            pair.other.follow(member);
            pair.other.attend(member);
        }
        pair.send();
        assert!(its(&pair) == before, "{what}");
        assert!(pair.other.ranks().contains(&gone), "{what}");
        pair.recover();
        assert_eq!(pair.other.taker_of(gone), Some(first), "{what}");
        pair.check();
        pair.check_ledger();
    }
}

#[test]
fn who_follows_has_a_dead_members_ring_after_a_while_if_nobody_who_was_there_before_takes_it() {
    let (mut pair, [_, gone, late]) = half_taken();
    pair.other.follow(late);
    pair.other.attend(late);
    pair.idle(LEFT_NS);
    pair.other.attend(late);
    assert_eq!(pair.other.taker_of(gone), Some(late));
    pair.check();
    pair.check_ledger();
}

/// The wait for a successor ends in one group before it ends in the other.
#[test]
fn who_follows_waits_for_no_successor_when_the_lead_does_not() {
    let mut pair = Pair::new(7);
    let [first, gone, late] = pair.come([0, 7, 0]);
    pair.send();
    pair.close(gone);
    pair.lead.attend(first);
    pair.idle(GRACE_NS - 1_000_000);
    pair.other.attend(first);
    pair.idle(1_000_000);
    pair.lead.attend(first);
    assert_eq!(pair.lead.taker_of(gone), Some(first));
    assert_eq!(pair.other.awaited(), [gone]);
    let before = pair.other.owners();
    pair.other.behind(&pair.lead);
    pair.other.follow(late);
    pair.other.attend(late);
    assert!(pair.other.owners() == before, "buckets moved too early");
    pair.act(first, LOOK, u64::MAX).unwrap();
    assert_eq!(pair.other.taker_of(gone), Some(first));
    pair.check();
    pair.check_ledger();
}

/// The lead ends the wait for one member while the following group gives away the buckets of
/// another.
#[test]
fn who_follows_takes_no_ring_whose_buckets_are_not_given_away() {
    let mut pair = Pair::new(7);
    let [first, awaited, gone, late] = pair.come([0, 7, 0, 0]);
    pair.send();
    pair.close(awaited);
    pair.close(gone);
    pair.lead.attend(first);
    pair.other.behind(&pair.lead);
    pair.idle(1_000_000);
    pair.other.follow(late);
    pair.other.attend(late);
    assert_eq!(pair.other.awaited(), [awaited]);
    pair.idle(GRACE_NS - 1_000_000);
    pair.other.follow(first);
    pair.lead.attend(first);
    assert_eq!(pair.lead.taker_of(awaited), Some(first));
    pair.other.behind(&pair.lead);
    pair.other.attend(first);
    pair.send();
    pair.recover();
    pair.check();
    pair.check_ledger();
}

/// Kills the member that changes both groups, at every step in either group. The next member must
/// repair the groups.
#[test]
fn who_dies_between_the_groups_is_followed_by_the_others() {
    let four = Pair::of(4);
    let acts = [JOIN, LOOK, LEAVE];
    for (number, &act) in acts.iter().enumerate() {
        let mut steps = 0;
        loop {
            let mut pair = four.clone();
            let actor = pair.open();
            for before in &acts[..number] {
                pair.act(actor, *before, u64::MAX).unwrap();
            }
            let is_whole = pair.act(actor, act, steps).is_ok();
            pair.send();
            pair.recover();
            pair.check();
            pair.check_ledger();
            if is_whole {
                break;
            }
            steps += if steps < 50 { 1 } else { 41 };
        }
        assert!(steps > 0);
    }
}

#[test]
fn members_of_both_come_go_and_die_at_random() {
    for seed in 0..super::runs() / 4 {
        let mut pair = Pair::new(seed);
        for _ in 0..40 {
            pair.send();
            pair.live();
            // Changes that are unfinished or unnoticed are completed before packets come.
            if let Some(&member) = pair.lead.members().first() {
                pair.lead.attend(member);
                pair.other.behind(&pair.lead);
                pair.other.attend(member);
            }
        }
        pair.recover();
        pair.check();
        pair.check_ledger();
    }
}
