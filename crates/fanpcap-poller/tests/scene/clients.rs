//! Members of a poller that runs in threads of the test, as other processes would be.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "each test uses a part")]
#![allow(unreachable_pub, reason = "a module of tests")]

#[path = "ring.rs"]
mod ring;

use super::scene::{drain, policy, reader};
use fanpcap_linux::file::directory::Directory;
use fanpcap_linux::process::effective_user;
use fanpcap_linux::unix::{message, named};
use fanpcap_linux::wait::{Wake, events};
use fanpcap_poll::message::{Answer, Hello, LONGEST, Request, Steering};
use fanpcap_poller::access::Access;
use fanpcap_poller::device::{Device, Together};
use fanpcap_poller::queue::{Idle, Queue};
use fanpcap_poller::server::Server;
use fanpcap_poller::{Burst, GroupCounts, Packet, Policy, Source, SourceCounts, SourceError};
use fanpcap_ring::{Layout as _, Pool, Remains};
use fanpcap_testkit::Scratch;
use fanpcap_testkit::await_for::{LIMIT, await_so};
use fanpcap_testkit::traffic::{self, Frame, sequence_of};
use ring::{Ends, Ring};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Frames that the test gives to a source.
#[derive(Clone, Default)]
pub struct Wire {
    frames: Arc<Mutex<VecDeque<Vec<u8>>>>,
    /// The device of DPDK that takes the place of `frames`.
    device: Arc<OnceLock<Ends>>,
}

impl Wire {
    pub fn send<'f>(&self, frames: impl IntoIterator<Item = &'f [u8]>) {
        if let Some(device) = self.device.get() {
            return frames.into_iter().for_each(|it| device.send(it));
        }
        let mut all = self.frames.lock().unwrap();
        all.extend(frames.into_iter().map(<[u8]>::to_vec));
    }

    /// A queue that takes the wire's frames. Only the first one does on a device of DPDK.
    pub fn queue(&self, queue: u16) -> Queue {
        if ring::IS_USED && self.device.get().is_none() {
            if let Some((source, ends)) = Ring::open(queue) {
                assert!(self.device.set(ends).is_ok());
                return Queue::start(Box::new(source), Idle::Sleep, || {}).unwrap();
            }
        }
        self.queue_of_memory(queue)
    }

    /// It spins, but gives the CPU to other threads while the wire has no frames.
    fn queue_of_memory(&self, queue: u16) -> Queue {
        let (wire, lent) = (self.clone(), Vec::new());
        let source = Fed { wire, lent, queue };
        Queue::start(Box::new(source), Idle::Spin, || {}).unwrap()
    }
}

/// A source of a wire's frames.
struct Fed {
    wire: Wire,
    lent: Vec<Vec<u8>>,
    queue: u16,
}

impl Source for Fed {
    fn burst<'s>(&'s mut self, burst: &mut Burst<'s>) -> Result<(), SourceError> {
        let mut frames = self.wire.frames.lock().unwrap();
        let count = frames.len().min(burst.room());
        self.lent.extend(frames.drain(..count));
        drop(frames);
        if count == 0 {
            thread::sleep(Duration::from_micros(200));
        }
        self.lent
            .iter()
            .for_each(|it| _ = burst.push(Packet::of(it)));
        Ok(())
    }

    fn release(&mut self) {
        self.lent.clear();
    }

    fn check(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    fn waits_on(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn transmit(&mut self, _: &[u8]) -> io::Result<bool> {
        Ok(false)
    }

    fn queue(&self) -> u16 {
        self.queue
    }

    fn counts(&mut self) -> SourceCounts {
        SourceCounts::default()
    }
}

/// A poller whose device has a queue for each wire.
pub struct Poller {
    pub server: Arc<Mutex<Server>>,
    scratch: Scratch,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

pub const NAME: &str = "poller";

impl Poller {
    pub fn of_wires(wires: &[Wire]) -> Self {
        Self::with(wires, policy())
    }

    pub fn with(wires: &[Wire], policy: Policy) -> Self {
        let queues = (0..).zip(wires).map(|(number, wire)| wire.queue(number));
        Self::of(queues.collect(), policy)
    }

    pub fn of_queues(queues: Vec<Queue>) -> Self {
        Self::of(queues, policy())
    }

    pub fn with_access(wire: &Wire, access: Access) -> Self {
        let device = Device::new(vec![wire.queue(0)], 7, 1, policy()).unwrap();
        Self::of_device(device.with_access(access))
    }

    /// A poller's server of one of several devices.
    pub fn of_one_in(together: &Together, name: &str, wire: &Wire) -> Self {
        let device = Device::new(vec![wire.queue(0)], 7, 1, policy()).unwrap();
        Self::of_device(device.beside(together, name).unwrap())
    }

    fn of(queues: Vec<Queue>, policy: Policy) -> Self {
        Self::of_device(Device::new(queues, 7, 1, policy).unwrap())
    }

    fn of_device(device: Device) -> Self {
        let scratch = Scratch::new().unwrap();
        let directory = Directory::open(&scratch.file("")).unwrap();
        let listener = named::socket().unwrap();
        named::listen(listener.as_fd(), &directory, OsStr::new(NAME), 0o600, 64).unwrap();
        let server = Server::new(listener, device);
        let (server, is_over) = (Arc::new(Mutex::new(server)), Arc::default());
        let (served, over): (_, Arc<AtomicBool>) = (Arc::clone(&server), Arc::clone(&is_over));
        let thread = thread::spawn(move || {
            let wake = Wake::new().unwrap();
            while !over.load(Ordering::Relaxed) {
                let turn = Duration::from_millis(2);
                served.lock().unwrap().turn(Some(&wake), turn).unwrap();
                thread::yield_now();
            }
        });
        Self {
            server,
            scratch,
            is_over,
            thread: Some(thread),
        }
    }

    /// The directory of the poller's socket.
    pub fn directory(&self) -> Directory {
        Directory::open(&self.path()).unwrap()
    }

    pub fn path(&self) -> PathBuf {
        self.scratch.file("")
    }

    pub fn connect(&self) -> OwnedFd {
        named::connect(&self.directory(), OsStr::new(NAME), LIMIT).unwrap()
    }

    pub fn counts(&self, group: Option<u16>) -> Option<GroupCounts> {
        let server = self.server.lock().unwrap();
        server
            .device()
            .look(group, effective_user())
            .map(|(_, counts)| counts)
    }

    /// The numbers of groups and of members.
    pub fn sizes(&self) -> [usize; 2] {
        self.server.lock().unwrap().device().sizes()
    }

    /// Enters, and says that the application reads.
    pub fn member(&self, hello: &Hello) -> Client {
        let mut client = self.newcomer(hello).unwrap();
        client.send(&Request::Reads);
        client.reads = true;
        client
    }

    /// Enters. Returns the text of the poller's refusal if there is one.
    pub fn newcomer(&self, hello: &Hello) -> Result<Client, String> {
        let socket = self.connect();
        let bytes = Request::Hello(hello.clone()).encode().unwrap();
        message::send(socket.as_fd(), &bytes, &[]).unwrap();
        let (answer, descriptors) = await_answer(socket.as_fd()).expect("an answer");
        match answer {
            Answer::Welcome(welcome) => {
                let opened = welcome.open(descriptors).unwrap();
                Ok(Client {
                    pool: reader(&opened.pool),
                    bell: opened.bell,
                    slot: welcome.slot,
                    group: welcome.group,
                    socket,
                    got: Vec::new(),
                    inherited: Vec::new(),
                    reads: false,
                    holds: false,
                })
            }
            Answer::Refused(refused) => Err(format!("{}: {}", refused.slug, refused.text)),
            other @ (Answer::Takeover(_) | Answer::Hold | Answer::GoOn) => {
                panic!("{other:?} in place of a welcome")
            }
        }
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join).unwrap().unwrap();
    }
}

/// The next message of the poller; `None` if it closes the connection.
pub fn await_answer(socket: BorrowedFd<'_>) -> Option<(Answer, Vec<OwnedFd>)> {
    let mut buffer = vec![0; LONGEST];
    let mut found = None;
    await_so("an answer", || {
        match message::receive(socket, &mut buffer, 4) {
            Ok(message) => found = Some(message),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => found = Some(None),
        }
        found.is_some()
    });
    let message = found.unwrap()?;
    let answer = Answer::decode(&buffer[..message.len]).unwrap();
    Some((answer, message.descriptors))
}

/// A hello for group 5.
pub fn hello() -> Hello {
    Hello {
        group: Some(5),
        steering: Steering::Any,
        name: None,
        weight: 1,
        class: 0,
        snaplen: 262_144,
        memory: Some(4 << 20),
        wants_sent: true,
        wants_number: false,
        pair: 0,
        poller: 0,
    }
}

/// A member. Its process dies when the value is dropped.
pub struct Client {
    pub socket: OwnedFd,
    pub pool: Pool,
    pub bell: OwnedFd,
    pub slot: u8,
    pub group: Option<u16>,
    pub got: Vec<Vec<u8>>,
    inherited: Vec<(u64, Remains)>,
    reads: bool,
    /// Whether it takes no packets of its own pool.
    holds: bool,
}

impl Client {
    pub fn send(&self, request: &Request) {
        message::send(self.socket.as_fd(), &request.encode().unwrap(), &[]).unwrap();
    }

    /// Whether the poller has woken the member since the last call.
    pub fn is_woken(&self) -> bool {
        let mut is_woken = false;
        while message::receive(self.bell.as_fd(), &mut [0; 8], 0).is_ok_and(|it| it.is_some()) {
            is_woken = true;
        }
        is_woken
    }

    /// Whether the poller has sent a message that the member has not taken.
    pub fn is_asked(&self) -> bool {
        events::poll(&[self.socket.as_fd()], Some(Duration::ZERO)).unwrap()[0]
    }

    /// Reads its own pool, as a busy reader does before it looks for messages.
    pub fn read_own(&mut self) {
        if !self.holds {
            self.got.extend(drain(&mut self.pool));
        }
    }

    /// Takes the poller's messages, and answers them.
    pub fn answer(&mut self) {
        let mut buffer = [0; 256];
        while let Ok(Some(message)) = message::receive(self.socket.as_fd(), &mut buffer, 4) {
            match Answer::decode(&buffer[..message.len]).unwrap() {
                Answer::Takeover(takeover) => {
                    assert!(self.holds, "a takeover while it takes packets");
                    let pool = takeover.open(message.descriptors).unwrap();
                    let remains = Remains::of_pool(reader(&pool), 0);
                    self.inherited.push((takeover.member, remains));
                }
                Answer::Hold => {
                    self.holds = true;
                    self.send(&Request::Holds);
                }
                Answer::GoOn => self.holds = false,
                other @ (Answer::Welcome(_) | Answer::Refused(_)) => panic!("{other:?}"),
            }
        }
    }

    /// Reads all that is there: the pools of members that are gone, and the own pool.
    pub fn read(&mut self) {
        self.answer();
        for (member, mut remains) in std::mem::take(&mut self.inherited) {
            while remains.head().is_some() {
                self.got
                    .push(remains.next_frame().unwrap().unwrap().data().to_vec());
            }
            self.send(&Request::ReadOut(member));
        }
        self.read_own();
    }
}

pub fn frames(from: u64, count: u64) -> Vec<Frame> {
    traffic::frames(from, &traffic::flows(5, 40), from..from + count).unwrap()
}

pub fn send(wire: &Wire, frames: &[Frame]) {
    wire.send(frames.iter().map(|it| &it.bytes[..]));
}

/// Reads until the members together have got so many packets of the test, and checks that no packet
/// came twice and no flow is split.
pub fn await_all(clients: &mut [Client], frames: &[Frame]) {
    await_so("all packets", || {
        clients.iter_mut().for_each(Client::read);
        clients.iter().map(|it| it.got.len()).sum::<usize>() >= frames.len()
    });
    let mut owners = HashMap::new();
    for (member, client) in clients.iter().enumerate() {
        let numbers = client.got.iter().map(|it| sequence_of(it).unwrap());
        owners.extend(numbers.map(|number| (number, member)));
    }
    assert_eq!(owners.len(), frames.len(), "each once");
    let mut flows = BTreeMap::new();
    for frame in frames {
        let owner = owners[&frame.sequence];
        assert_eq!(
            *flows.entry(frame.flow.key()).or_insert(owner),
            owner,
            "a flow is split"
        );
    }
}

/// Waits until this number of members have their shares.
pub fn await_shares(poller: &Poller, count: usize) {
    await_so("shares", || shares(poller) == count);
}

/// The number of members that have a share.
pub fn shares(poller: &Poller) -> usize {
    let server = poller.server.lock().unwrap();
    let view = server
        .device()
        .look(Some(5), effective_user())
        .map(|(view, _)| view);
    let places = view.map_or_else(Vec::new, |it| it.places);
    places.iter().filter(|it| it.buckets > 0).count()
}
