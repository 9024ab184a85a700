//! A poller of the wire's end, in threads of the test.

use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fanpcap_linux::file::directory::Directory;
use fanpcap_linux::interface;
use fanpcap_linux::unix::named;
use fanpcap_netns::{DEVICE, Wire};
use fanpcap_poll::place;
use fanpcap_poller::afxdp;
use fanpcap_poller::device::Device;
use fanpcap_poller::packet::{Options, PacketSource};
use fanpcap_poller::queue::{Idle, Queue};
use fanpcap_poller::server::Server;
use fanpcap_poller::{GroupCounts, Policy, Sender, SentCounts, Source};
use fanpcap_testkit::Program;
use fanpcap_testkit::await_for::{LIMIT, await_for};

/// A poller of [`DEVICE`].
pub(crate) struct Poller {
    server: Arc<Mutex<Server>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    directory: Directory,
    name: OsString,
}

const ETHERNET: u16 = 1;

/// The user whose groups the tests look at.
const ROOT: u32 = 0;

/// A ring that loses no packet if the poller's thread does not get the CPU for a second.
const OPTIONS: Options = Options {
    blocks: 256,
    retire_ms: 5,
    is_promiscuous: true,
};

impl Poller {
    /// Starts a poller in the calling thread's network namespace. `engine` is `packet` or `afxdp`.
    pub(crate) fn start(engine: &str) -> Result<Self> {
        Self::start_with(engine, OPTIONS)
    }

    /// Starts a poller as [`Poller::start`] does, whose packet socket has these options.
    pub(crate) fn start_with(engine: &str, options: Options) -> Result<Self> {
        Self::start_as(engine, options, false, Duration::ZERO)
    }

    /// Starts a poller that answers members after 300 ms at the earliest.
    pub(crate) fn start_late(engine: &str) -> Result<Self> {
        Self::start_as(engine, OPTIONS, false, Duration::from_millis(300))
    }

    /// Starts a poller that sends the frames of members.
    pub(crate) fn start_sending(engine: &str) -> Result<Self> {
        Self::start_as(engine, OPTIONS, true, Duration::ZERO)
    }

    /// The server rests for `between` after each turn. To accept a member takes one turn, and to
    /// answer it takes the next one.
    fn start_as(engine: &str, options: Options, sends: bool, between: Duration) -> Result<Self> {
        let ifindex = interface::index(DEVICE).context("no device")?;
        let source: Box<dyn Source + Send> = match engine {
            "packet" => Box::new(PacketSource::open(ifindex, options)?),
            "afxdp" => Box::new(afxdp::open(ifindex, 1)?.remove(0)),
            _ => bail!("no engine {engine}"),
        };
        let queue = Queue::start(source, Idle::Sleep, || {})?;
        let (directory, _) = place::make()?;
        let name = place::name(engine, DEVICE);
        // An earlier namespace may have had the same number, and a killed test's poller.
        let _ = directory.remove_file(&name);
        let listener: OwnedFd = named::socket()?;
        named::listen(listener.as_fd(), &directory, &name, 0o660, 64)?;
        let mut device = Device::new(vec![queue], ifindex, ETHERNET, Policy::default())?;
        if sends {
            device = device.sending(Sender::open(ifindex)?);
        }
        let server = Arc::new(Mutex::new(Server::new(listener, device)));
        let is_over = Arc::<AtomicBool>::default();
        let (served, over) = (Arc::clone(&server), Arc::clone(&is_over));
        let thread = thread::spawn(move || serve(&served, &over, between));
        Ok(Self {
            server,
            is_over,
            thread: Some(thread),
            directory,
            name,
        })
    }

    /// The counts of a group of root's members.
    pub(crate) fn counts(&self, group: u16) -> Option<GroupCounts> {
        let server = self.server.lock().ok()?;
        server
            .device()
            .look(Some(group), ROOT)
            .map(|(_, counts)| counts)
    }

    /// Stops the queue's thread until the returned value is dropped.
    pub(crate) fn stall(&self) -> Stall {
        let (end, ended) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel();
        let server = Arc::clone(&self.server);
        let thread = thread::spawn(move || {
            let server = server.lock().ok()?;
            server.device().queues()[0].change(move |_| {
                let _ = begin.send(());
                let _ = ended.recv();
            })
        });
        let _ = begun.recv();
        Stall {
            _end: end,
            _thread: thread,
        }
    }

    /// What became of the frames of members.
    pub(crate) fn sent(&self) -> SentCounts {
        let server = self.server.lock().ok();
        server.map(|it| it.device().sent()).unwrap_or_default()
    }

    /// Runs this while the poller answers no member. The queues' threads go on.
    pub(crate) fn while_deaf<T>(&self, run: impl FnOnce() -> T) -> T {
        let _server = self.server.lock();
        run()
    }

    /// Packets that the source has dropped.
    pub(crate) fn dropped(&self) -> Result<u64> {
        let counts = self.server.lock().ok().and_then(|it| it.device().counts());
        let (queues, _) = counts.context("no server")?;
        Ok(queues.iter().map(|it| it.dropped).sum())
    }

    /// The buckets of the members of root's group.
    fn buckets(&self, group: u16) -> Vec<usize> {
        let Ok(server) = self.server.lock() else {
            return Vec::new();
        };
        let seen = server.device().look(Some(group), ROOT);
        let places = seen.map(|(seen, _)| seen.places).unwrap_or_default();
        places.iter().map(|it| it.buckets).collect()
    }

    /// Waits until there are so many groups, those of single handles included.
    pub(crate) fn await_groups(&self, count: usize) -> Result<()> {
        await_for("groups", LIMIT, || {
            let groups = self.server.lock().map(|server| server.device().sizes()[0]);
            Ok(matches!(groups, Ok(groups) if groups == count).then_some(()))
        })
    }

    /// The path of the poller's socket.
    pub(crate) fn path(&self) -> Result<PathBuf> {
        Ok(fs::canonicalize(self.directory.path_to(&self.name)?)?)
    }

    /// Waits until each of a group's members has its share.
    pub(crate) fn await_shares(&self, group: u16, members: usize) -> Result<()> {
        await_for("the members' shares", LIMIT, || {
            let buckets = self.buckets(group);
            let [least, most] = [buckets.iter().min(), buckets.iter().max()];
            let differ = most.zip(least).map_or(0, |(most, least)| most - least);
            Ok((buckets.len() == members && differ < 2).then_some(()))
        })
    }
}

/// A queue's thread that stands still.
pub(crate) struct Stall {
    _end: mpsc::Sender<()>,
    _thread: JoinHandle<Option<()>>,
}

fn serve(server: &Mutex<Server>, is_over: &AtomicBool, between: Duration) {
    while !is_over.load(Ordering::Relaxed) {
        // Short turns, so that the test can look at the server.
        let limit = Duration::from_millis(2);
        let turned = server.lock().map(|mut server| server.turn(None, limit));
        if !matches!(turned, Ok(Ok(()))) {
            return;
        }
        thread::sleep(between);
        thread::yield_now();
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
        let _ = self.directory.remove_file(&self.name);
        let _ = place::remove_empty();
    }
}

/// tcpdump whose packets come from a poller.
pub(crate) fn tcpdump(wire: &Wire, engine: &str) -> Result<Program> {
    wire.tcpdump_on(&format!("{engine}:{DEVICE}"))
}
