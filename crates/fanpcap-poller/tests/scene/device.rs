//! A device with one queue, its members, and the time, which the test has.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "each test uses a part")]
#![allow(unreachable_pub, reason = "a module of tests")]

use super::clients::{Wire, hello};
use super::scene::{drain, policy, reader};
use fanpcap_linux::unix::Peer;
use fanpcap_poll::message::{Hello, Refused, Takeover};
use fanpcap_poller::access::Grant;
use fanpcap_poller::device::{Device, Entered, Notice, Told};
use fanpcap_poller::{GroupCounts, Policy, Shared};
use fanpcap_ring::{Layout as _, Pool, Remains};
use fanpcap_testkit::FlowKey;
use fanpcap_testkit::await_for::await_so;
use fanpcap_testkit::traffic::{self, sequence_of};
use std::collections::{BTreeMap, VecDeque};

pub const SECOND: u64 = 1_000_000_000;

/// A device with one queue, and the time.
pub struct Scene {
    pub device: Device,
    pub wire: Wire,
    pub now_ns: u64,
    pub sent: u64,
    /// The flows of the packets, by their numbers.
    pub flows: Vec<FlowKey>,
}

/// A pool that a member shall read, because the pool's member is gone.
pub struct Inherited {
    /// The member that reads the pool.
    pub to: u64,
    pub takeover: Takeover,
    pub pool: Shared,
}

/// A member's process.
pub struct Member {
    pub number: u64,
    pub slot: u8,
    pub pool: Pool,
    pub got: Vec<u64>,
}

impl Member {
    pub fn of(entered: &Entered) -> Self {
        Self {
            number: entered.member,
            slot: entered.welcome.slot,
            pool: reader(&entered.pool),
            got: Vec::new(),
        }
    }

    pub fn read(&mut self) {
        let frames = drain(&mut self.pool);
        self.got
            .extend(frames.iter().map(|it| sequence_of(it).unwrap()));
    }

    /// Reads another member's pool to its end.
    pub fn read_out(&mut self, inherited: &Inherited) {
        let mut remains = Remains::of_pool(reader(&inherited.pool), 0);
        while remains.head().is_some() {
            let frame = remains.next_frame().unwrap().unwrap();
            self.got.push(sequence_of(frame.data()).unwrap());
        }
    }
}

impl Scene {
    pub fn new() -> Self {
        Self::with(policy())
    }

    pub fn with(policy: Policy) -> Self {
        let wire = Wire::default();
        Self {
            device: Device::new(vec![wire.queue(0)], 7, 1, policy).unwrap(),
            wire,
            now_ns: SECOND,
            sent: 0,
            flows: Vec::new(),
        }
    }

    pub fn enter(&mut self, hello: &Hello, user: u32) -> Result<Entered, Refused> {
        let peer = Peer {
            pid: 9,
            user,
            group: user,
        };
        self.device
            .enter(hello, (peer, Grant::default()), self.now_ns)
    }

    /// The slug of the answer to a newcomer that is refused.
    pub fn refusal(&mut self, hello: &Hello, user: u32) -> String {
        self.enter(hello, user).unwrap_err().slug
    }

    /// A member of group 5 whose application reads.
    pub fn member(&mut self) -> Member {
        self.member_with(&hello())
    }

    pub fn member_with(&mut self, hello: &Hello) -> Member {
        let entered = self.enter(hello, 0).unwrap();
        self.device.reads(entered.member, self.now_ns);
        Member::of(&entered)
    }

    /// Checks that a member has got no packet of a flow after a later one.
    pub fn ensure_order(&self, member: &Member) {
        let mut last = BTreeMap::new();
        for &number in &member.got {
            let flow = &self.flows[usize::try_from(number).unwrap()];
            let before = last.insert(flow, number);
            assert!(before < Some(number), "{before:?} before {number}");
        }
    }

    /// A member's connection closes, and members that are asked to take no packets answer at once.
    /// Returns the pools that they shall read.
    pub fn hang_up(&mut self, member: u64) -> Vec<Inherited> {
        let notices = self.device.hang_up(member, self.now_ns);
        self.answer(notices)
    }

    /// A member has read a pool to its end.
    pub fn tell_read_out(&mut self, inherited: &Inherited) {
        let gone = inherited.takeover.member;
        let notices = self.device.read_out(inherited.to, gone, self.now_ns);
        assert!(notices.is_empty(), "{notices:?}");
    }

    /// See [`answer`].
    pub fn answer(&mut self, notices: Vec<Notice>) -> Vec<Inherited> {
        answer(&mut self.device, notices, self.now_ns)
    }

    /// Sends packets, and waits until they are in pools.
    pub fn send(&mut self, count: u64) {
        let numbers = self.sent..self.sent + count;
        let frames = traffic::frames(self.sent, &traffic::flows(5, 40), numbers).unwrap();
        self.wire.send(frames.iter().map(|it| &it.bytes[..]));
        self.flows.extend(frames.iter().map(|it| it.flow.key()));
        self.sent += count;
        await_so("the packets", || self.counts().produced == self.sent);
    }

    pub fn counts(&self) -> GroupCounts {
        self.device.look(Some(5), 0).unwrap().1
    }

    /// The number of a member's buckets.
    pub fn buckets(&self, member: &Member) -> usize {
        let places = self.device.look(Some(5), 0).unwrap().0.places;
        places[usize::from(member.slot)].buckets
    }

    /// Lets time pass, and does what is due.
    pub fn pass(&mut self, ns: u64) -> Vec<Notice> {
        self.now_ns += ns;
        self.device.tick(self.now_ns)
    }
}

/// Lets members that are asked to take no packets answer at once. Returns the pools that they shall
/// read. The last message to each of these members lets it go on.
pub fn answer(device: &mut Device, notices: Vec<Notice>, now_ns: u64) -> Vec<Inherited> {
    let (mut inherited, mut holding) = (Vec::new(), Vec::new());
    let mut notices = VecDeque::from(notices);
    while let Some(Notice { to, what }) = notices.pop_front() {
        match what {
            Told::Hold => {
                holding.push(to);
                notices.extend(device.holds(to, now_ns).unwrap());
            }
            Told::Takeover(takeover, pool) => {
                assert!(holding.contains(&to), "a member that takes packets");
                inherited.push(Inherited { to, takeover, pool });
            }
            Told::GoOn => holding.retain(|it| *it != to),
        }
    }
    assert!(holding.is_empty(), "all go on");
    inherited
}

/// Lets seconds pass in which packets come and these members read.
pub fn run(scene: &mut Scene, seconds: u64, reading: &mut [Member]) {
    for _ in 0..2 * seconds {
        scene.send(40);
        reading.iter_mut().for_each(Member::read);
        assert!(scene.pass(SECOND / 2).is_empty());
    }
}
