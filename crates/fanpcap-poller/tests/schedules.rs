//! Members of a group that one process serves join, leave, die and hang, in random schedules. Each
//! packet comes once to one member, or to a member that has taken over, and each flow in order.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod scene;

use fanpcap_group::served::{Joining, Members, Orphan, Progress, ServedGroup};
use fanpcap_group::view::{FinalCounters, State};
use fanpcap_poll::{PoolFile, PoolKind};
use fanpcap_poller::{FanOut, MemberSlot, NewGroup};
use fanpcap_ring::{Layout as _, Pool, Remains};
use fanpcap_steer::GroupOptions;
use fanpcap_testkit::traffic::{self, Frame, sequence_of};
use proptest::prelude::*;
use scene::{ALL, Fake, SIZE_OF_POOL, group, poll_all, reader, table};
use std::collections::{BTreeMap, BTreeSet, HashMap};

const FLOW: &str = "main = par3 (inner steer_flow) steer_link (steer_to 0)";

/// What the poller has of a member.
struct Connection {
    file: PoolFile,
    is_open: bool,
    progress: Progress,
}

/// The poller's side: the queue, and the members' connections.
struct Side {
    fan_out: FanOut,
    connections: BTreeMap<u64, Connection>,
    now_ns: u64,
}

impl Side {
    fn remains(&self, member: u64) -> Remains {
        Remains::of_pool(reader(&self.connections[&member].file), 0)
    }
}

impl Members for Side {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn is_connected(&self, member: u64) -> bool {
        self.connections.get(&member).is_some_and(|it| it.is_open)
    }

    fn admit(&mut self, member: u64, slot: u8) {
        let (file, mut lanes) = PoolFile::create(PoolKind::File, SIZE_OF_POOL).unwrap();
        let at = MemberSlot { group: 0, slot };
        let former = self.fan_out.admit(at, lanes.remove(0), ALL);
        assert!(former.unwrap().is_none());
        let connection = Connection {
            file,
            is_open: true,
            progress: Progress::new(self.now_ns),
        };
        self.connections.insert(member, connection);
    }

    fn dismiss(&mut self, slot: u8) {
        self.fan_out.dismiss(MemberSlot { group: 0, slot });
    }

    fn settle(&mut self) {}

    fn hangs(&self, member: u64) -> bool {
        let connection = self.connections.get(&member);
        connection.is_some_and(|it| it.progress.hangs(self.now_ns))
    }

    fn is_half_full(&self, member: u64) -> bool {
        self.remains(member).is_half_full()
    }
}

/// A member's application.
struct Application {
    pool: Pool,
    got: Vec<u64>,
    hangs: bool,
    /// Whether the poller has asked it to take no packets, and it has not looked for messages since.
    is_asked: bool,
    /// What it still has to read of members that are gone.
    inherited: Vec<(Orphan, Remains)>,
}

struct World {
    side: Side,
    group: ServedGroup,
    applications: BTreeMap<u64, Application>,
    /// What applications that are gone have got.
    got_before: Vec<Vec<u64>>,
    sent: u64,
    last: u64,
    frames: Vec<Frame>,
    /// The names of members, and of the member that has ended last.
    names: BTreeMap<u64, &'static str>,
    left: Option<&'static str>,
}

impl World {
    fn new() -> Self {
        Self::with(GroupOptions::default())
    }

    fn with(options: GroupOptions) -> Self {
        let memory = table(true);
        let mut fan_out = FanOut::new(0);
        let new = NewGroup {
            options,
            ..group(FLOW, &memory)
        };
        assert!(fan_out.begin(0, new));
        Self {
            side: Side {
                fan_out,
                connections: BTreeMap::new(),
                now_ns: 1_000_000_000,
            },
            group: ServedGroup::begin(memory, 1, 5, None, 1).unwrap(),
            applications: BTreeMap::new(),
            got_before: Vec::new(),
            sent: 0,
            last: 0,
            frames: Vec::new(),
            names: BTreeMap::new(),
            left: None,
        }
    }

    fn join(&mut self, name: Option<&str>) {
        self.last += 1;
        let joining = Joining {
            member: self.last,
            pid: 7,
            weight: 1,
            class: 0,
            name,
        };
        let slot = self.group.join(&joining, &mut self.side).unwrap();
        assert!(slot.is_some());
        let application = Application {
            pool: reader(&self.side.connections[&self.last].file),
            got: Vec::new(),
            hangs: false,
            is_asked: false,
            inherited: Vec::new(),
        };
        self.applications.insert(self.last, application);
    }

    fn send(&mut self, count: u64) {
        let flows = traffic::flows(5, 30);
        let numbers = self.sent..self.sent + count;
        self.sent += count;
        let frames = traffic::frames(self.sent, &flows, numbers).unwrap();
        let mut source = Fake::new(frames.iter().map(|it| &it.bytes[..]));
        poll_all(&mut self.side.fan_out, &mut source);
        self.frames.extend(frames);
    }

    /// The nth member, if there are any.
    fn nth(&self, nth: usize) -> Option<u64> {
        let count = self.applications.len();
        let at = nth.checked_rem(count)?;
        self.applications.keys().nth(at).copied()
    }

    /// The member looks for messages. If it is asked to take no packets, it inherits before it
    /// takes the next one.
    fn look(&mut self, member: u64) {
        let application = self.applications.get_mut(&member).unwrap();
        if !std::mem::take(&mut application.is_asked) {
            return;
        }
        let orphans = self.group.take_over(member, &mut self.side).unwrap();
        for orphan in orphans {
            let remains = self.side.remains(orphan.member);
            let application = self.applications.get_mut(&member).unwrap();
            application.inherited.push((orphan, remains));
        }
    }

    fn read(&mut self, member: u64, most: usize) {
        let application = self.applications.get_mut(&member).unwrap();
        let mut left = most;
        let take = |bytes: &[u8]| sequence_of(bytes).unwrap();
        while left > 0 {
            let Some((orphan, remains)) = application.inherited.last_mut() else {
                break;
            };
            if remains.head().is_none() {
                let gone = orphan.member;
                application.inherited.pop();
                let counters = FinalCounters::default();
                self.group.vacate(gone, &counters, &mut self.side).unwrap();
                continue;
            }
            application
                .got
                .push(take(remains.next_frame().unwrap().unwrap().data()));
            left -= 1;
        }
        while left > 0 && application.pool.open() {
            match application.pool.next_frame().unwrap() {
                Some(frame) => application.got.push(take(frame.data())),
                None => _ = application.pool.release(),
            }
            left -= 1;
        }
    }

    /// The member's process ends.
    fn end(&mut self, member: u64) {
        if self.applications.len() < 2 {
            return;
        }
        self.side.connections.get_mut(&member).unwrap().is_open = false;
        let application = self.applications.remove(&member).unwrap();
        self.got_before.push(application.got);
    }

    /// The poller does the part of all members whose applications read, and asks those that have
    /// something to inherit.
    fn attend(&mut self) {
        for it in self.side.connections.values_mut() {
            let unread = it.file.map_words().unwrap().progress();
            it.progress.look(unread, self.side.now_ns);
        }
        let members: Vec<u64> = self.applications.keys().copied().collect();
        for member in members {
            if self.applications[&member].hangs || self.side.hangs(member) {
                continue;
            }
            let inherits = self.group.attend(member, &mut self.side).unwrap();
            self.applications.get_mut(&member).unwrap().is_asked |= inherits;
        }
    }

    /// As [`World::attend`], and all members look for messages.
    fn attend_and_look(&mut self) {
        self.attend();
        let members: Vec<u64> = self.applications.keys().copied().collect();
        members.into_iter().for_each(|it| self.look(it));
    }

    fn step(&mut self, (what, nth, count): (u8, usize, u16)) {
        self.side.now_ns += 1_000_000;
        let name = ["a", "b"].get(nth % 5).copied();
        match (what % 12, self.nth(nth)) {
            (0..4, _) => self.send(u64::from(count % 300)),
            (4, _) if self.applications.len() < 7 => self.join(name),
            (5 | 6, Some(member)) => self.end(member),
            (7, Some(member)) => {
                let application = self.applications.get_mut(&member).unwrap();
                application.hangs = !application.hangs;
            }
            (8, _) => self.side.now_ns += u64::from(count) * 1_000_000,
            (_, Some(member)) if !self.applications[&member].hangs => {
                if count % 3 == 0 {
                    self.look(member);
                }
                self.read(member, usize::from(count % 500));
            }
            _ => {}
        }
        self.attend();
    }

    /// Everybody reads until nothing is left.
    fn finish(&mut self) {
        for application in self.applications.values_mut() {
            application.hangs = false;
        }
        for _ in 0..12 {
            self.side.now_ns += 1_000_000_000;
            self.read_all();
        }
    }

    /// All members look for messages, and read what there is.
    fn read_all(&mut self) {
        self.attend_and_look();
        let members: Vec<u64> = self.applications.keys().copied().collect();
        members.into_iter().for_each(|it| self.read(it, usize::MAX));
    }

    /// Whether a member that is gone has not been replaced, or its pool has not been read.
    fn is_changing(&self) -> bool {
        let mut places = self.group.look().places.into_iter();
        places.any(|it| !matches!(it.state, State::Live | State::Vacant | State::Free))
    }

    /// A step after which each flow must still be in order (decision 43): no member hangs, one ends
    /// only if no other is still to be replaced, and before a newcomer gets its share all packets
    /// are read.
    fn ordered_step(&mut self, (what, nth, count): (u8, usize, u16)) {
        self.side.now_ns += 1_000_000;
        let name = ["a", "b"].get(nth % 5).copied();
        let is_changing = self.is_changing();
        match (what % 12, self.nth(nth)) {
            (0..4, _) => self.send(u64::from(count % 300)),
            (4, _) if self.applications.len() < 7 && (!is_changing || self.is_awaited(name)) => {
                self.read_all();
                self.join(name);
                self.names.extend(name.map(|name| (self.last, name)));
            }
            (5 | 6, Some(member)) if !is_changing => {
                self.end(member);
                self.left = self.names.get(&member).copied();
            }
            // The wait for a successor ends. Nobody counts as hanging meanwhile.
            (7, _) => {
                self.read_all();
                self.side.now_ns += 2_100_000_000;
            }
            (8, Some(member)) => self.look(member),
            (_, Some(member)) => self.read(member, usize::from(count % 500)),
            _ => {}
        }
        self.attend();
    }

    /// Whether only a successor of this name is missing.
    fn is_awaited(&self, name: Option<&str>) -> bool {
        let mut places = self.group.look().places.into_iter();
        name.is_some() && name == self.left && places.any(|it| it.state == State::Awaited)
    }

    fn got(&self) -> Vec<u64> {
        let applications = self.applications.values();
        let mut got: Vec<u64> = applications.flat_map(|it| it.got.clone()).collect();
        got.extend(self.got_before.iter().flatten());
        got.sort_unstable();
        got
    }
}

fn check(world: &World) {
    let counts = world.side.fan_out.counts(0).unwrap();
    assert_eq!(counts.offered, world.sent);
    assert_eq!((counts.no_member, counts.dropped), (0, 0));
    assert!(
        world.got().into_iter().eq(0..world.sent),
        "each packet once"
    );
    let places = world.group.look().places;
    let owners: usize = places.iter().map(|it| it.buckets).sum();
    assert_eq!(owners, 4096, "{places:?}");
    let states = places.iter().map(|it| it.state);
    let left: Vec<State> = states
        .filter(|it| !matches!(it, State::Live | State::Vacant | State::Free))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn each_packet_comes_once_whoever_comes_and_goes(
        steps in proptest::collection::vec((any::<u8>(), any::<usize>(), any::<u16>()), 1..60),
    ) {
        let mut world = World::new();
        world.join(None);
        steps.into_iter().for_each(|step| world.step(step));
        world.finish();
        check(&world);
    }

    #[test]
    fn each_flow_is_in_order_when_members_come_and_go_one_by_one(
        steps in proptest::collection::vec((any::<u8>(), any::<usize>(), any::<u16>()), 1..60),
    ) {
        let mut world = World::new();
        world.join(None);
        steps.into_iter().for_each(|step| world.ordered_step(step));
        world.finish();
        check(&world);
        check_order(&world);
    }
}

/// No application has got a packet of a flow after a later one.
fn check_order(world: &World) {
    let applications = world.applications.values().map(|it| &it.got);
    for got in applications.chain(&world.got_before) {
        let mut last = BTreeMap::new();
        for &number in got {
            let flow = world.frames[usize::try_from(number).unwrap()].flow.key();
            let before = last.insert(flow, number);
            assert!(before < Some(number), "{before:?} before {number}");
        }
    }
}

/// The members of the packets' flows, by the packets that each application has got.
fn owners(world: &World) -> HashMap<String, BTreeSet<u64>> {
    let mut owners: HashMap<String, BTreeSet<u64>> = HashMap::new();
    for (member, application) in &world.applications {
        for &number in &application.got {
            let flow = format!(
                "{:?}",
                world.frames[usize::try_from(number).unwrap()].flow.key()
            );
            owners.entry(flow).or_default().insert(*member);
        }
    }
    owners
}

#[test]
fn a_death_moves_only_the_flows_of_the_member_that_dies() {
    let mut world = World::new();
    for _ in 0..4 {
        world.join(None);
        world.attend_and_look();
    }
    world.send(3000);
    (1..5).for_each(|member| world.read(member, usize::MAX));
    let before = owners(&world);
    assert!(
        before.values().all(|members| members.len() == 1),
        "no flow is split"
    );
    for member in 1..5 {
        world.applications.get_mut(&member).unwrap().got.clear();
    }
    world.end(3);
    world.attend_and_look();
    world.send(3000);
    world.finish();
    let got: usize = world.applications.values().map(|it| it.got.len()).sum();
    assert_eq!(got, 3000);
    for (flow, members) in owners(&world) {
        assert_eq!(members.len(), 1, "no flow is split");
        let former = before.get(&flow);
        assert!(
            former == Some(&members) || former == Some(&BTreeSet::from([3])),
            "{flow}"
        );
    }
}

#[test]
fn a_newcomer_to_a_sticky_group_moves_no_flow_that_is_remembered() {
    let mut world = World::with(GroupOptions::sticky(65_536));
    for _ in 0..3 {
        world.join(None);
        world.attend_and_look();
    }
    let owners_after = |world: &mut World| {
        world.send(3000);
        world.finish();
        let owners = owners(world);
        for application in world.applications.values_mut() {
            application.got.clear();
        }
        owners
    };
    let before = owners_after(&mut world);
    world.join(None);
    world.attend_and_look();
    assert!(
        world
            .group
            .look()
            .places
            .iter()
            .all(|it| it.buckets == 1024)
    );
    assert_eq!(owners_after(&mut world), before);
    // The flows of a member that dies go to others.
    world.end(2);
    world.attend_and_look();
    let after = owners_after(&mut world);
    for (flow, members) in before {
        let moves = members.contains(&2);
        assert_eq!(after[&flow] != members, moves, "{flow}");
    }
}

#[test]
fn a_successor_gets_the_pool_and_the_buckets_of_its_predecessor() {
    let mut world = World::new();
    for name in [None, Some("a")] {
        world.join(name);
        world.attend_and_look();
    }
    let slots = |world: &World| {
        let places = world.group.look().places.into_iter();
        places.map(|it| (it.state, it.buckets)).collect::<Vec<_>>()
    };
    assert_eq!(slots(&world), [(State::Live, 2048), (State::Live, 2048)]);
    world.end(2);
    world.attend_and_look();
    world.send(1000);
    assert_eq!(slots(&world)[1], (State::Awaited, 2048));
    world.join(Some("a"));
    world.attend_and_look();
    world.read(3, usize::MAX);
    let got = world.applications[&3].got.len();
    assert!((200..800).contains(&got), "what came meanwhile: {got}");
    world.finish();
    assert!(world.got().into_iter().eq(0..1000));
    assert_eq!(world.group.look().takeovers, 1);
}

#[test]
fn a_member_is_drained_and_the_last_one_is_not() {
    let mut world = World::new();
    for _ in 0..2 {
        world.join(None);
        world.attend_and_look();
    }
    world.group.weigh(1, 0, &mut world.side).unwrap();
    world.send(500);
    world.finish();
    assert_eq!(
        (
            world.applications[&1].got.len(),
            world.applications[&2].got.len()
        ),
        (0, 500)
    );
    assert!(world.group.weigh(2, 0, &mut world.side).is_err());
    assert!(world.group.weigh(9, 1, &mut world.side).is_err());
    assert!(world.group.due_ns(2, world.side.now_ns, false).is_some());
}

#[test]
fn a_group_that_all_members_have_left_gets_no_more_packets_into_their_pools() {
    let mut world = World::new();
    world.join(None);
    world.attend_and_look();
    assert!(!world.group.is_memberless(&mut world.side).unwrap());
    world.side.connections.get_mut(&1).unwrap().is_open = false;
    assert!(world.group.is_memberless(&mut world.side).unwrap());
    world.send(10);
    assert_eq!(world.side.fan_out.counts(0).unwrap().no_member, 10);
}
