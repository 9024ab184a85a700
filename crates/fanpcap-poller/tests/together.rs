//! Processes that have a handle on each of two devices of a poller, whose servers run in threads.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "scene/clients.rs"]
mod clients;
mod scene;

use clients::{Client, NAME, Poller, Wire, hello};
use fanpcap_linux::file::directory::Directory;
use fanpcap_linux::process::effective_user;
use fanpcap_poll::Asking;
use fanpcap_poll::message::{Hello, Question, Reply};
use fanpcap_poller::device::Together;
use fanpcap_testkit::await_for::{LIMIT, await_so};
use fanpcap_testkit::traffic::{self, Direction, Frame, sequence_of};
use std::collections::BTreeMap;
use std::ffi::OsStr;

struct Devices {
    wires: [Wire; 2],
    pollers: [Poller; 2],
    sent: u64,
}

/// A process's handles on the two devices.
type Process = [Client; 2];

impl Devices {
    fn new() -> Self {
        let together = Together::default();
        let wires = [Wire::default(), Wire::default()];
        let poller = |at: usize| {
            let name = format!("packet:eth{at}");
            Poller::of_one_in(&together, &name, &wires[at])
        };
        Self {
            pollers: [0, 1].map(poller),
            wires,
            sent: 0,
        }
    }

    fn open(&self, process: u64) -> Process {
        let hello = Hello {
            pair: process << 8,
            ..hello()
        };
        [0, 1].map(|device: usize| self.pollers[device].member(&hello))
    }

    /// The buckets of the member in this slot.
    fn buckets(&self, device: usize, slot: u8) -> usize {
        let server = self.pollers[device].server.lock().unwrap();
        let seen = server.device().look(Some(5), effective_user());
        let places = seen.map_or_else(Vec::new, |(view, _)| view.places);
        places.get(usize::from(slot)).map_or(0, |it| it.buckets)
    }

    /// Asks a device's poller for another weight of a process's member.
    fn weigh(&self, device: usize, process: &Process, weight: u16) -> Reply {
        let directory = Directory::open(&self.pollers[device].path()).unwrap();
        let mut asking = Asking::connect(&directory, OsStr::new(NAME), LIMIT).unwrap();
        let groups = asking.groups().unwrap();
        let member = groups[0].slots[usize::from(process[device].slot)].member;
        asking.ask(Question::Weigh { member, weight }).unwrap()
    }

    /// Waits until each process has the same number of buckets on both devices, and this part of
    /// all of them. The processes answer the pollers meanwhile.
    fn await_shares(&self, processes: &mut [&mut Process]) {
        let least = 4096 / processes.len();
        await_so("shares", || {
            let clients = processes.iter_mut().flat_map(|it| it.iter_mut());
            clients.for_each(Client::answer);
            processes.iter().all(|process| {
                let [one, other] = [0, 1].map(|at| self.buckets(at, process[at].slot));
                one == other && one >= least
            })
        });
    }

    /// Sends requests by the first device and replies by the second. Returns which process got the
    /// packets of each flow.
    fn whole(&mut self, processes: &mut [&mut Process]) -> BTreeMap<String, usize> {
        let count = 2000;
        let flows = traffic::flows(5, 40);
        let frames = traffic::frames(self.sent, &flows, self.sent..self.sent + count).unwrap();
        self.sent += count;
        for frame in &frames {
            let device = usize::from(frame.direction == Direction::Reply);
            self.wires[device].send([&frame.bytes[..]]);
        }
        let before: Vec<usize> = processes.iter().map(|it| got(it)).collect();
        let all = usize::try_from(count).unwrap() + before.iter().sum::<usize>();
        await_so("all packets", || {
            let clients = processes.iter_mut().flat_map(|it| it.iter_mut());
            clients.for_each(Client::read);
            processes.iter().map(|it| got(it)).sum::<usize>() == all
        });
        owners(&frames, processes)
    }
}

fn got(process: &Process) -> usize {
    process.iter().map(|it| it.got.len()).sum()
}

fn owners(frames: &[Frame], processes: &[&mut Process]) -> BTreeMap<String, usize> {
    let mut got = BTreeMap::new();
    for (number, process) in processes.iter().enumerate() {
        let packets = process.iter().flat_map(|it| &it.got);
        got.extend(packets.map(|it| (sequence_of(it).unwrap(), number)));
    }
    let mut owners = BTreeMap::new();
    for frame in frames {
        let owner = got[&frame.sequence];
        let flow = format!("{:?}", frame.flow.key());
        assert_eq!(
            *owners.entry(flow).or_insert(owner),
            owner,
            "a flow is split"
        );
    }
    owners
}

#[test]
fn two_processes_on_two_devices_and_one_that_dies_and_one_that_comes() {
    let mut devices = Devices::new();
    let [mut first, mut second] = [devices.open(1), devices.open(2)];
    devices.await_shares(&mut [&mut first, &mut second]);
    let before = devices.whole(&mut [&mut first, &mut second]);
    let mut third = devices.open(3);
    devices.await_shares(&mut [&mut first, &mut second, &mut third]);
    let after = devices.whole(&mut [&mut first, &mut second, &mut third]);
    let is_at_third = |flow: &String| after[flow] == 2;
    assert!(after.keys().filter(|it| is_at_third(it)).count() > 20);
    assert!(
        before
            .iter()
            .all(|(flow, owner)| is_at_third(flow) || after[flow] == *owner)
    );
    // A process dies. Others may get what it has not read.
    drop(first);
    devices.await_shares(&mut [&mut second, &mut third]);
    let last = devices.whole(&mut [&mut second, &mut third]);
    assert!(
        after
            .iter()
            .all(|(flow, owner)| *owner == 0 || last[flow] + 1 == *owner)
    );
}

#[test]
fn a_process_is_drained_on_both_devices_by_the_one_that_decides() {
    let mut devices = Devices::new();
    let [mut first, mut second] = [devices.open(1), devices.open(2)];
    devices.await_shares(&mut [&mut first, &mut second]);
    let Reply::NotDone(why) = devices.weigh(1, &first, 0) else {
        panic!("the other device decides");
    };
    assert!(why.contains("packet:eth0 decides"), "{why}");
    assert_eq!(devices.weigh(0, &first, 0), Reply::Done);
    await_so("the other device", || {
        devices.buckets(1, first[1].slot) == 0
    });
    // What a command asks for each device of a process.
    assert_eq!(devices.weigh(1, &first, 0), Reply::Done);
    let owners = devices.whole(&mut [&mut first, &mut second]);
    assert!(
        owners.values().all(|it| *it == 1),
        "the other process has all flows"
    );
    assert_eq!(devices.weigh(0, &first, 1), Reply::Done);
    devices.await_shares(&mut [&mut first, &mut second]);
    devices.whole(&mut [&mut first, &mut second]);
}

#[test]
fn devices_of_two_pollers_are_told_apart() {
    let wire = Wire::default();
    let [one, other] = ["packet:eth0", "packet:eth1"]
        .map(|name| Poller::of_one_in(&Together::default(), name, &wire));
    let _first = one.member(&hello());
    // The number of no poller.
    let needed = Hello {
        poller: 7,
        ..hello()
    };
    let refused = other.newcomer(&needed).err().unwrap();
    assert!(
        refused.contains("serve all of them by one command"),
        "{refused}"
    );
}
