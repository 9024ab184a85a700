//! Two devices of one poller, and processes that have handles on both. The requests of all flows
//! come by the first device, and the replies by the second. The test has the time.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "each test uses a part")]
#![allow(unreachable_pub, reason = "a module of tests")]

use super::clients::{Wire, hello};
use super::device::{Member, SECOND, answer};
use super::scene::{policy, reader};
use fanpcap_linux::unix::Peer;
use fanpcap_poll::message::{Hello, Refused};
use fanpcap_poller::access::Grant;
use fanpcap_poller::device::{Device, Entered, Notice, Together};
use fanpcap_testkit::await_for::await_so;
use fanpcap_testkit::traffic::{self, Direction, Flow};

pub const BOTH: [usize; 2] = [0, 1];

/// The user of all members, unless a test says otherwise.
pub const USER: u32 = 1000;

const DIRECTIONS: [Direction; 2] = [Direction::Request, Direction::Reply];

pub struct Pair {
    pub devices: [Device; 2],
    wires: [Wire; 2],
    flows: Vec<Flow>,
    pub now_ns: u64,
    sent: u64,
    processes: u64,
}

/// A process with a handle on each of some devices.
pub struct Process {
    pub number: u64,
    pub members: [Option<Member>; 2],
    /// Packets of other members that it has read.
    pub inherited: usize,
}

/// The process that got each flow's packet, by device.
pub type Owners = [Vec<Option<u64>>; 2];

impl Pair {
    pub fn new() -> Self {
        let together = Together::default();
        let wires = [Wire::default(), Wire::default()];
        let device = |at: usize| {
            let index = u32::try_from(at).unwrap() + 7;
            let device = Device::new(vec![wires[at].queue(0)], index, 1, policy()).unwrap();
            device
                .beside(&together, &format!("packet:eth{at}"))
                .unwrap()
        };
        Self {
            devices: BOTH.map(device),
            wires,
            flows: traffic::flows(5, 100),
            now_ns: SECOND,
            sent: 0,
            processes: 0,
        }
    }

    pub fn process(&mut self) -> Process {
        self.processes += 1;
        Process {
            number: self.processes,
            members: [None, None],
            inherited: 0,
        }
    }

    pub fn enter(&mut self, device: usize, hello: &Hello, user: u32) -> Result<Entered, Refused> {
        let peer = Peer {
            pid: 9,
            user,
            group: user,
        };
        self.devices[device].enter(hello, (peer, Grant::default()), self.now_ns)
    }

    /// A process opens a handle in group 5, and reads it.
    pub fn open(&mut self, process: &mut Process, device: usize) {
        self.open_as(process, device, hello());
    }

    pub fn open_as(&mut self, process: &mut Process, device: usize, hello: Hello) {
        let pair = process.number << 8;
        let entered = self.enter(device, &Hello { pair, ..hello }, USER).unwrap();
        let notices = self.devices[device].reads(entered.member, self.now_ns);
        assert!(notices.is_empty());
        process.members[device] = Some(Member {
            number: entered.member,
            slot: entered.welcome.slot,
            pool: reader(&entered.pool),
            got: Vec::new(),
        });
    }

    /// A process with handles on both devices, opened in this order.
    pub fn come(&mut self, devices: [usize; 2]) -> Process {
        let mut process = self.process();
        for device in devices {
            self.open(&mut process, device);
        }
        process
    }

    /// A handle of a process is closed.
    pub fn close(&mut self, process: &mut Process, device: usize, others: &mut [Process]) {
        let member = process.members[device].take().unwrap();
        let notices = self.devices[device].hang_up(member.number, self.now_ns);
        self.read_out(device, notices, others);
    }

    /// A process dies. Its connections close in this order.
    pub fn die(&mut self, mut process: Process, order: [usize; 2], others: &mut [Process]) {
        for device in order {
            self.close(&mut process, device, others);
        }
        self.settle(others);
    }

    /// The members that inherit pools read them.
    pub fn read_out(&mut self, device: usize, mut notices: Vec<Notice>, processes: &mut [Process]) {
        while !notices.is_empty() {
            let inherited = answer(&mut self.devices[device], notices, self.now_ns);
            notices = Vec::new();
            for pool in inherited {
                let is_it = |it: &&mut Process| {
                    let member = it.members[device].as_ref();
                    member.is_some_and(|it| it.number == pool.to)
                };
                let process = processes.iter_mut().find(is_it).unwrap();
                let member = process.members[device].as_mut().unwrap();
                let before = member.got.len();
                member.read_out(&pool);
                process.inherited += member.got.len() - before;
                let gone = pool.takeover.member;
                notices.extend(self.devices[device].read_out(pool.to, gone, self.now_ns));
            }
        }
    }

    /// How many buckets a slot of group 5 has.
    pub fn buckets(&self, device: usize, slot: u8) -> usize {
        let seen = self.devices[device].look(Some(5), USER).unwrap().0;
        seen.places[usize::from(slot)].buckets
    }

    /// Lets time pass.
    pub fn pass(&mut self, ns: u64, processes: &mut [Process]) {
        self.now_ns += ns;
        self.settle(processes);
    }

    /// Lets the devices do what is due, and hear of each other.
    pub fn settle(&mut self, processes: &mut [Process]) {
        for device in [BOTH, BOTH].concat() {
            let notices = self.devices[device].tick(self.now_ns);
            self.read_out(device, notices, processes);
        }
    }

    /// Sends a packet of each flow in each direction, which stay in the pools.
    pub fn send(&mut self) {
        let each = self.flows.len() as u64;
        for (device, direction) in BOTH.into_iter().zip(DIRECTIONS) {
            let offered = self.taken(device) + each;
            for flow in &self.flows {
                let frame = traffic::frame(*flow, direction, self.sent, 20).unwrap();
                self.wires[device].send([&frame.bytes[..]]);
                self.sent += 1;
            }
            await_so("the packets", || self.taken(device) == offered);
        }
    }

    /// How many packets the device's queue has taken, with or without a group.
    fn taken(&self, device: usize) -> u64 {
        let queue = &self.devices[device].queues()[0];
        queue.change(|queue| queue.fan_out.packets()).unwrap()
    }

    /// Sends packets, and has them read. Returns who got each flow's packets.
    pub fn owners(&mut self, processes: &mut [Process]) -> Owners {
        processes.iter_mut().for_each(|it| it.read(&BOTH));
        let (first, each) = (self.sent, self.flows.len());
        self.send();
        let mut owners = BOTH.map(|_| vec![None; each]);
        for process in processes {
            for member in process.members.iter_mut().flatten() {
                let before = member.got.len();
                member.read();
                for number in &member.got[before..] {
                    let at = usize::try_from(number - first).unwrap();
                    let owner = owners[at / each][at % each].replace(process.number);
                    assert_eq!(owner, None, "a packet came twice");
                }
            }
        }
        owners
    }

    /// The owners after the devices have heard of each other. Each packet has an owner, and both
    /// directions of a flow the same one.
    pub fn whole(&mut self, processes: &mut [Process]) -> Vec<u64> {
        self.settle(processes);
        let [requests, replies] = self.owners(processes);
        assert!(requests == replies, "the directions part");
        requests.into_iter().map(Option::unwrap).collect()
    }
}

impl Process {
    /// Reads its own pools at these devices.
    pub fn read(&mut self, devices: &[usize]) {
        for device in devices {
            self.members[*device].iter_mut().for_each(Member::read);
        }
    }

    pub fn member(&self, device: usize) -> u64 {
        self.members[device].as_ref().unwrap().number
    }
}

/// Checks that only flows moved that a process had before, or has now.
pub fn ensure_only(process: u64, before: &[u64], after: &[u64]) {
    let mut moved = before.iter().zip(after).filter(|(one, other)| one != other);
    assert!(moved.all(|(one, other)| [*one, *other].contains(&process)));
}

/// How many flows a process has.
pub fn count(owners: &[u64], process: &Process) -> usize {
    owners.iter().filter(|it| **it == process.number).count()
}
