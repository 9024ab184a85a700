//! A queue, a group that it serves, and the group's members as processes would be. The test has the
//! time.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(unreachable_pub, reason = "a module of tests")]

#[path = "ring.rs"]
mod ring;

use super::scene::{ALL, Fake, SIZE_OF_POOL, group, poll_all, reader, table};
use fanpcap_group::served::{Joining, Members, Orphan, Progress, ServedGroup};
use fanpcap_group::view::{FinalCounters, State};
use fanpcap_poll::{PoolFile, PoolKind};
use fanpcap_poller::{FanOut, MemberSlot, NewGroup};
use fanpcap_ring::{Layout as _, Pool, Remains};
use fanpcap_steer::GroupOptions;
use fanpcap_testkit::traffic::{self, Frame, sequence_of};
use ring::{Ends, Ring};
use std::cell::RefCell;
use std::collections::BTreeMap;

pub const FLOW: &str = "main = par3 (inner steer_flow) steer_link (steer_to 0)";

/// What the poller has of a member.
pub struct Connection {
    pub file: PoolFile,
    pub is_open: bool,
    pub progress: Progress,
}

/// The poller's side: the queue, and the members' connections.
pub struct Side {
    pub fan_out: FanOut,
    pub connections: BTreeMap<u64, Connection>,
    pub now_ns: u64,
}

impl Side {
    pub fn remains(&self, member: u64) -> Remains {
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
pub struct Application {
    pub pool: Pool,
    pub got: Vec<u64>,
    pub hangs: bool,
    /// Whether the poller has asked it to take no packets, and it has not looked for messages.
    pub is_asked: bool,
    /// What it still has to read of members that are gone.
    pub inherited: Vec<(Orphan, Remains)>,
}

pub struct World {
    pub side: Side,
    pub group: ServedGroup,
    pub applications: BTreeMap<u64, Application>,
    /// What applications that are gone have got.
    pub got_before: Vec<Vec<u64>>,
    pub sent: u64,
    pub last: u64,
    pub frames: Vec<Frame>,
    /// The names of members, and of the member that has ended last.
    pub names: BTreeMap<u64, &'static str>,
    pub left: Option<&'static str>,
}

thread_local! {
    /// The device of DPDK by which packets come.
    static DEVICE: RefCell<Option<(Ring, Ends)>> = const { RefCell::new(None) };
}

/// Lets the group have these packets.
fn poll(fan_out: &mut FanOut, frames: &[Frame]) {
    let is_polled = ring::IS_USED
        && DEVICE.with_borrow_mut(|device| {
            *device = device.take().or_else(|| Ring::open(0));
            device
                .as_mut()
                .is_some_and(|device| poll_device(fan_out, device, frames))
        });
    if !is_polled {
        poll_all(
            fan_out,
            &mut Fake::new(frames.iter().map(|it| &it.bytes[..])),
        );
    }
}

fn poll_device(fan_out: &mut FanOut, (ring, ends): &mut (Ring, Ends), frames: &[Frame]) -> bool {
    for some in frames.chunks(512) {
        some.iter().for_each(|it| ends.send(&it.bytes));
        let mut left = some.len();
        while left > 0 {
            left -= fan_out.poll(ring, 1000, &mut |_| ()).unwrap();
        }
    }
    true
}

impl World {
    pub fn new() -> Self {
        Self::with(GroupOptions::default())
    }

    pub fn with(options: GroupOptions) -> Self {
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

    pub fn join(&mut self, name: Option<&str>) {
        self.last += 1;
        let joining = Joining {
            member: self.last,
            pid: 7,
            weight: 1,
            class: 0,
            name,
            pair: 0,
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

    pub fn send(&mut self, count: u64) {
        let flows = traffic::flows(5, 30);
        let numbers = self.sent..self.sent + count;
        self.sent += count;
        let frames = traffic::frames(self.sent, &flows, numbers).unwrap();
        poll(&mut self.side.fan_out, &frames);
        self.frames.extend(frames);
    }

    /// The nth member, if there are any.
    pub fn nth(&self, nth: usize) -> Option<u64> {
        let count = self.applications.len();
        let at = nth.checked_rem(count)?;
        self.applications.keys().nth(at).copied()
    }

    /// The member looks for messages. If it is asked to take no packets, it inherits before it
    /// takes the next one.
    pub fn look(&mut self, member: u64) {
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

    pub fn read(&mut self, member: u64, most: usize) {
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
    pub fn end(&mut self, member: u64) {
        if self.applications.len() < 2 {
            return;
        }
        self.side.connections.get_mut(&member).unwrap().is_open = false;
        let application = self.applications.remove(&member).unwrap();
        self.got_before.push(application.got);
    }

    /// The poller does the part of all members whose applications read, and asks those that have
    /// something to inherit.
    pub fn attend(&mut self) {
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
    pub fn attend_and_look(&mut self) {
        self.attend();
        let members: Vec<u64> = self.applications.keys().copied().collect();
        members.into_iter().for_each(|it| self.look(it));
    }

    pub fn step(&mut self, (what, nth, count): (u8, usize, u16)) {
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
    pub fn finish(&mut self) {
        for application in self.applications.values_mut() {
            application.hangs = false;
        }
        for _ in 0..12 {
            self.side.now_ns += 1_000_000_000;
            self.read_all();
        }
    }

    /// All members look for messages, and read what there is.
    pub fn read_all(&mut self) {
        self.attend_and_look();
        let members: Vec<u64> = self.applications.keys().copied().collect();
        members.into_iter().for_each(|it| self.read(it, usize::MAX));
    }

    /// Whether a member that is gone has not been replaced, or its pool has not been read.
    pub fn is_changing(&self) -> bool {
        let mut places = self.group.look().places.into_iter();
        places.any(|it| !matches!(it.state, State::Live | State::Vacant | State::Free))
    }

    /// A step after which each flow must still be in order (decision 43): no member hangs, one ends
    /// only if no other is still to be replaced, and before a newcomer gets its share all packets
    /// are read.
    pub fn ordered_step(&mut self, (what, nth, count): (u8, usize, u16)) {
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
    pub fn is_awaited(&self, name: Option<&str>) -> bool {
        let mut places = self.group.look().places.into_iter();
        name.is_some() && name == self.left && places.any(|it| it.state == State::Awaited)
    }

    pub fn got(&self) -> Vec<u64> {
        let applications = self.applications.values();
        let mut got: Vec<u64> = applications.flat_map(|it| it.got.clone()).collect();
        got.extend(self.got_before.iter().flatten());
        got.sort_unstable();
        got
    }
}
