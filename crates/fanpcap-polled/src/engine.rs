//! The engines whose packets come from a poller. The poller does all their work, so they differ in
//! nothing but their names here.

use crate::enter::{EnterError, PolledMember, enter_or_keep};
use crate::pair;
use crate::tasks::Tasks;
use fanpcap_engine::{
    EnterGroup, EnterRequest, NO_POLLER, Polled, PolledIo, Refusal, SILENT_POLLER,
};
use fanpcap_linux::file::shared::Word;
use fanpcap_linux::unix::named;
use fanpcap_poll::message::{self, Hello, Program, Steering};
use fanpcap_poll::place::{self, Found};
use fanpcap_reader::{GroupTasks, Input};
use fanpcap_ring::PoolWords;
use fanpcap_steer::{Balance, GroupOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// An engine whose packets come from a poller.
#[derive(Debug)]
pub struct OfPoller {
    name: &'static str,
    /// Whether the devices are network interfaces.
    has_interface: bool,
}

impl OfPoller {
    /// The poller reads a packet socket.
    pub const PACKET: Self = Self::on_interfaces("packet");
    /// The poller reads AF_XDP sockets.
    pub const AFXDP: Self = Self::on_interfaces("afxdp");
    /// The poller reads the rings of netmap.
    pub const NETMAP: Self = Self::on_interfaces("netmap");
    /// The poller reads the queues of PF_RING ZC.
    pub const ZC: Self = Self::on_interfaces("zc");
    /// The poller polls devices of DPDK.
    pub const DPDK: Self = Self {
        name: "dpdk",
        has_interface: false,
    };

    const fn on_interfaces(name: &'static str) -> Self {
        Self {
            name,
            has_interface: true,
        }
    }
}

/// A poller's pools have whole blocks of this length, and so many if the member asks for no size.
const BLOCK_LEN: u32 = 1 << 20;
const BLOCKS: u32 = 64;

impl Polled for OfPoller {
    fn name(&self) -> &'static str {
        self.name
    }

    fn pool_bytes(&self, asked: Option<u32>) -> Option<u64> {
        let blocks = asked.map_or(BLOCKS, |bytes| bytes.div_ceil(BLOCK_LEN));
        Some(u64::from(blocks) * u64::from(BLOCK_LEN))
    }

    fn is_elsewhere(&self, device: &str) -> bool {
        if !self.has_interface {
            return true;
        }
        match place::open(self.name, device) {
            Ok(found) => found.is_mounted,
            // [`Polled::enter`] reports other errors. Otherwise the system's library would say that
            // there is no such device.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    fn devices(&self) -> Vec<String> {
        let names = place::names().into_iter();
        let mut found: Vec<String> = names.filter_map(|it| it.into_string().ok()).collect();
        found.retain_mut(|name| match name.strip_prefix(self.name) {
            Some(rest) if rest.starts_with(':') => {
                *name = rest[1..].to_owned();
                is_reachable(self.name, name)
            }
            Some(_) | None => false,
        });
        found
    }

    fn enter(
        &self,
        request: &EnterRequest<'_>,
        asked: &mut Option<OwnedFd>,
    ) -> Result<Arc<dyn PolledIo>, Refusal> {
        let at = || format!("{}:{}", self.name, request.device);
        let hello = hello(request);
        let opened = place::open(self.name, request.device).map_err(EnterError::Unreachable);
        let entered = opened
            .and_then(|it| enter_or_keep(&it.directory, &it.name, &hello, request.limit, asked))
            .and_then(|member| Io::new(member).map_err(EnterError::Pool));
        let io = entered.map_err(|error| refusal(&at(), error))?;
        Ok(Arc::new(io))
    }
}

/// Whether a poller listens, and this process may connect to it. A poller that was killed leaves
/// its socket's name. A poller that is busy has no room for a connection now.
fn is_reachable(engine: &str, device: &str) -> bool {
    let connect = |found: Found| named::connect(&found.directory, &found.name, Duration::ZERO);
    match place::open(engine, device).and_then(connect) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::TimedOut,
    }
}

/// The refusal of a handle that is no member of the poller of `at`, such as `packet:eth0`.
pub fn refusal(at: &str, error: EnterError) -> Refusal {
    match error {
        EnterError::Unreachable(error) => unreachable(at, &error),
        EnterError::Silent => Refusal::new(silent(at), SILENT_POLLER),
        EnterError::Refused(refused) => Refusal::new(refused.text, "poller-refused"),
        EnterError::Malformed(malformed) => Refusal::new(malformed, "poller-version"),
        EnterError::Pool(error) => {
            let text = format!("the pool of the poller of {at}: {error}");
            Refusal::new(text, "poller-failed")
        }
    }
}

/// The refusal if the poller can't be reached.
fn unreachable(at: &str, error: &io::Error) -> Refusal {
    let is = |kinds: &[io::ErrorKind]| kinds.contains(&error.kind());
    if is(&[io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused]) {
        let text = format!("no poller serves {at}: start one: fanpcap poller {at}");
        return Refusal::new(text, NO_POLLER);
    }
    if is(&[io::ErrorKind::TimedOut]) {
        return Refusal::new(silent(at), SILENT_POLLER);
    }
    // A directory that is not trusted has an error without a number.
    if is(&[io::ErrorKind::PermissionDenied]) && error.raw_os_error().is_some() {
        let text = format!(
            "this process may not use the poller of {at}: {error}: be root or in the group of the \
             poller's --socket-group"
        );
        return Refusal::new(text, "poller-forbidden");
    }
    let text = format!("can't reach the poller of {at}: {error}");
    Refusal::new(text, "poller-failed")
}

fn silent(at: &str) -> String {
    format!("the poller of {at} does not answer: it is stopped or busy")
}

fn hello(request: &EnterRequest<'_>) -> Hello {
    let steering = match (request.steering, request.former) {
        (Some((text, options)), _) => Steering::Program(program(text, options)),
        (None, Some((text, options))) => Steering::Former(program(text, options)),
        (None, None) => Steering::Any,
    };
    let memory = request.ask.bytes;
    let memory = memory.map(|bytes| bytes.checked_next_multiple_of(BLOCK_LEN).unwrap_or(bytes));
    Hello {
        group: match request.group {
            EnterGroup::Number(number) => Some(number),
            EnterGroup::Own | EnterGroup::New => None,
        },
        steering,
        name: request.name.map(str::to_owned),
        weight: request.weight,
        class: request.class,
        snaplen: request.ask.snaplen,
        memory,
        wants_sent: request.ask.outgoing,
        wants_number: request.group == EnterGroup::New,
        pair: pair::of(request.whole.map_or(0, |whole| whole.number)),
        poller: request.whole.map_or(0, |whole| whole.poller),
    }
}

fn program(text: &str, options: GroupOptions) -> Program {
    Program {
        text: text.to_owned(),
        flows: options.flows,
        balance: options.balance.map(|balance| match balance {
            Balance::Idle => message::Balance::Idle,
            Balance::All => message::Balance::All,
        }),
    }
}

fn options(program: &Program) -> GroupOptions {
    GroupOptions {
        flows: program.flows,
        balance: program.balance.map(|balance| match balance {
            message::Balance::Idle => Balance::Idle,
            message::Balance::All => Balance::All,
        }),
    }
}

/// A member, with its tasks and the counters in its pool.
struct Io {
    member: PolledMember,
    tasks: Arc<Tasks>,
    words: PoolWords,
}

impl Io {
    fn new(member: PolledMember) -> io::Result<Self> {
        Ok(Self {
            tasks: member.own_tasks()?,
            words: member.words()?,
            member,
        })
    }
}

impl PolledIo for Io {
    fn input(&self, timeout: Option<Duration>) -> io::Result<Input> {
        self.member.input(timeout)
    }

    fn tasks(&self) -> Arc<dyn GroupTasks> {
        Arc::clone(&self.tasks) as Arc<dyn GroupTasks>
    }

    fn note_asked(&self) {
        self.tasks.tell();
    }

    fn group(&self) -> Option<u16> {
        self.member.group()
    }

    fn steering(&self) -> Option<(&str, GroupOptions)> {
        let program = self.member.steering()?;
        Some((&program.text, options(program)))
    }

    fn poller(&self) -> u64 {
        self.member.poller()
    }

    fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.member.send(frame)
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.member.bytes())
    }

    fn figures(&self) -> io::Result<[Word; 3]> {
        self.member.figures()
    }

    fn counted(&self) -> [u64; 2] {
        let lanes = (0..self.words.lanes()).map(|lane| self.words.counts(lane));
        lanes.fold([0, 0], |[received, dropped], counts| {
            let received = received.saturating_add(counts.produced);
            [
                received.saturating_add(counts.dropped),
                dropped.saturating_add(counts.dropped),
            ]
        })
    }

    fn missed(&self) -> u64 {
        let lanes = (0..self.words.lanes()).map(|lane| self.words.missed(lane));
        lanes.fold(0, u64::saturating_add)
    }
}
