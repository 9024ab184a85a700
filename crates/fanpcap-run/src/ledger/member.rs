//! One member: its page and its socket. This command holds the socket, so that it can read the
//! member's losses after the member has died.

mod by_engine;
mod stop;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fanpcap_config::mode::ModeKind;
use fanpcap_group::closing::{CloseError, Closing};
use fanpcap_group::group_counters::GroupCounters;
use fanpcap_group::page::{GroupDir, HeldPage, MemberId};
use fanpcap_group::record::Record;
use fanpcap_group::rejecting::Rejecting;
use fanpcap_group::roster;
use fanpcap_group::takeover_status::TakeoverStatus;
use fanpcap_linux::netlink::link;
use fanpcap_linux::process::{child::is_lack_of_descriptors, pidfd::Process};

use super::Account;

/// If this much time has passed since the page disappeared, and the member's process still has the
/// socket, another process removed the page.
const LEAVES_WITHIN: Duration = Duration::from_secs(1);

/// How long to hold the socket of an ended member while no other member notes a takeover on that
/// member's page. The group waits until the socket is closed. So if no member can note a takeover,
/// a longer time would delay every change of the group.
const TAKERS_WITHIN: Duration = Duration::from_secs(10);

/// A member of a copy.
#[derive(Debug)]
pub(super) struct Member {
    /// The number of the member's copy.
    pub(super) copy: usize,
    /// The device that the member captures on.
    pub(super) ifindex: u32,
    pub(super) id: MemberId,
    /// Path of the member page.
    pub(super) path: PathBuf,
    /// Last record on the member page.
    pub(super) record: Record,
    /// The page. It stays readable after the member's death, even if other processes remove the
    /// file.
    page: HeldPage,
    /// `None` if the process had already ended when this process began to hold the member.
    process: Option<Process>,
    socket: Option<OwnedFd>,
    /// The kernel refused to duplicate the socket into this process.
    is_denied: bool,
    /// What this process lacks to hold the socket, and the group's counters.
    pub(super) lacks: Option<&'static str>,
    /// The XDP group's counters, once the member is in the group.
    counters: Option<Arc<GroupCounters>>,
    /// The account was made from the XDP engine's own counters, which are newer than those on the
    /// page.
    is_counted: bool,
    /// The member refuses packets now and is about to be settled.
    closing: Option<Closing>,
    /// Time when the page was found missing.
    leaving: Option<Instant>,
    /// Time when the process was found dead.
    ended: Option<Instant>,
    /// How this command has stopped the member's packets, before it sends the signal to end.
    stopped: Option<stop::Stopped>,
    /// When the packets were stopped: the longest time until the kernel hands over the packets in
    /// the ring.
    pub(super) timeout: Duration,
    /// After the member had ended, the group became empty, so this member ends no absence.
    pub(super) is_of_before: bool,
}

impl Member {
    /// Holds the page of the member `id` of process `pid` and, if possible, the process and the
    /// socket. Also returns a complaint if the socket could not be held for lack of a privilege or
    /// of descriptors. `None` if the page is gone.
    pub(super) fn hold(
        copy: usize,
        (ifindex, group): (u32, u16),
        (pid, id): (u32, MemberId),
    ) -> Option<(Self, Option<String>)> {
        let group_dir = GroupDir::of(ifindex, group).ok()?;
        let page = group_dir.hold(pid, id).ok()?;
        let record = page.record()?;
        let process = Process::open(pid);
        let socket = match &process {
            Ok(process) => process.socket(pid, id.socket()),
            Err(error) => Err(io::Error::from(error.kind())),
        };
        let denied = socket.as_ref().err().filter(|error| {
            error.kind() == io::ErrorKind::PermissionDenied || is_lack_of_descriptors(error)
        });
        // A founder counts what a killed member has left unread.
        let is_founded = || roster::founder(ifindex, group).is_some();
        let unknown = denied.filter(|_| !is_founded());
        let complaint = unknown.map(|error| complaint(copy, error));
        let lacks = denied.map(lacks);
        let member = Self {
            copy,
            ifindex,
            id,
            path: group_dir.page(pid, id),
            record,
            page,
            process: process.ok(),
            is_denied: denied.is_some(),
            lacks,
            socket: socket.ok(),
            counters: None,
            is_counted: false,
            closing: None,
            leaving: None,
            ended: None,
            stopped: None,
            timeout: Duration::ZERO,
            is_of_before: false,
        };
        Some((member, complaint))
    }

    /// The times in which the member rejected packets, and the time of its join.
    pub(super) fn rejecting(&self) -> Rejecting {
        let begun = Rejecting {
            has_begun: true,
            ..Rejecting::default()
        };
        self.page.rejecting().unwrap_or(begun)
    }

    /// Holds the member's new page, unless the member joined with the old page. If a member can't
    /// join in the first mode that it tries, it removes its page and creates another page for the
    /// next mode.
    pub(super) fn hold_page_again(&mut self, group: u16) {
        if self.rejecting().has_begun {
            return;
        }
        let group_dir = GroupDir::of(self.ifindex, group);
        let page = group_dir.and_then(|group_dir| group_dir.hold(self.record.pid, self.id));
        let record = page.as_ref().ok().and_then(HeldPage::record);
        if let (Ok(page), Some(record)) = (page, record) {
            (self.page, self.record) = (page, record);
            self.leaving = None;
        }
    }

    /// Reads the page again. A record from before the join does not show the engine.
    pub(super) fn read_page(&mut self) {
        if let Some(record) = self.page.record() {
            self.record = record;
        }
    }

    /// Whether the process has ended.
    pub(super) fn is_dead(&mut self) -> bool {
        let is_dead = match &self.process {
            Some(process) => process.ends_within(Some(Duration::ZERO)).unwrap_or(false),
            None => !self.page.is_had().unwrap_or(true),
        };
        if is_dead {
            self.ended.get_or_insert_with(Instant::now);
        }
        is_dead
    }

    /// The descriptor to wait for: it becomes readable when the process ends. `None` if the end is
    /// known already, or if the group is not steered: then the next check of all processes is early
    /// enough.
    pub(super) fn end(&self) -> Option<BorrowedFd<'_>> {
        let process = self.process.as_ref()?;
        (self.is_steered() && self.ended.is_none()).then(|| process.as_fd())
    }

    /// Whether the group has a steering program, so that other members read the rings of dead
    /// members.
    pub(super) fn is_steered(&self) -> bool {
        self.record.mode.kind == ModeKind::Program
    }

    /// Whether a process, such as a forked child, still has the member's socket open.
    pub(super) fn is_had(&self) -> bool {
        self.page.is_had().unwrap_or(false)
    }

    /// Whether a member whose page is gone has left: its process has closed the socket, or has
    /// ended. If another process removed the page, the member's process keeps the socket, and the
    /// member must not be settled.
    pub(super) fn has_left(&mut self) -> bool {
        self.leaving.get_or_insert_with(Instant::now);
        let process = self.process.as_ref();
        let socket = process.map(|process| process.socket(self.record.pid, self.id.socket()));
        socket.is_none_or(|socket| socket.is_err())
    }

    /// Whether the member is about to leave and must be checked again soon.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving
            .is_some_and(|since| since.elapsed() < LEAVES_WITHIN)
    }

    /// Time of the last complete reading of the counters, if later counters are lost. On packet
    /// sockets they are lost if the member died during a later reading. On XDP they are lost if
    /// this process does not hold the engine's counters and no member wrote final counters on the
    /// page: the kernel frees the engine's counters with the group's last member.
    pub(super) fn lost_since(&self) -> Option<u64> {
        let has_lost = match self.record.is_on_engine() {
            true => !self.is_counted && !self.takeover().is_final,
            false => self.page.died_reading(),
        };
        has_lost.then_some(self.record.read_ns)
    }

    /// The account according to the member page.
    pub(super) fn account(&self) -> Account {
        let read = self.record.read_ns > 0;
        let [taken, inherited] = self.taken();
        Account {
            received: read.then_some(self.record.counters.received),
            dropped: read.then_some(self.record.counters.dropped),
            taken,
            inherited,
            unread: Some(0),
            refused: Some(0),
            uncounted_at_most: self.rejecting().at_most(None),
        }
    }

    /// Packets that this member took from its ring, and packets that other members took from that
    /// ring after this member ended.
    fn taken(&self) -> [Option<u64>; 2] {
        let inherited = self.takeover().inherited;
        let own = |taken: u64| taken.saturating_sub(inherited);
        [self.record.taken.map(own), Some(inherited)]
    }

    /// Whether another member has begun to read this member's ring.
    pub(super) fn has_taker(&self) -> bool {
        self.takeover().has_begun
    }

    fn takeover(&self) -> TakeoverStatus {
        self.page.takeover().unwrap_or_default()
    }

    /// The account of the member once its takeover is complete; `None` until then. Releases the
    /// member's socket, because the group waits until the socket is closed.
    pub(super) fn inherited(&mut self) -> Option<Account> {
        if !self.takeover().is_final {
            let has_waited = !self.awaits_takers();
            drop(self.socket.take_if(|_| has_waited));
            return None;
        }
        drop(self.socket.take());
        self.read_page();
        let counters = self.record.counters;
        let given = counters.received.saturating_sub(counters.dropped);
        let unread = self.record.taken.map(|all| given.saturating_sub(all));
        let counted = link::packets(self.ifindex).ok();
        Some(Account {
            received: Some(counters.received),
            dropped: Some(counters.dropped),
            unread,
            uncounted_at_most: self.rejecting().at_most(counted),
            ..self.account()
        })
    }

    /// Whether the member ended so recently that other members may be reading its ring.
    pub(super) fn awaits_takers(&self) -> bool {
        let ended = self.ended.or(self.leaving);
        ended.is_some_and(|at| at.elapsed() < TAKERS_WITHIN)
    }

    /// Stops watching a member that may continue to run, and returns its account.
    pub(super) fn leave_alone(self) -> Account {
        Account {
            unread: None,
            refused: None,
            ..self.account()
        }
    }

    /// Makes the member refuse and count all further packets, if no process reads its ring any
    /// more. If the member was closed or its process died, this command has the last descriptor of
    /// the socket. Returns false if the member can't be settled yet, because a forked child still
    /// has the socket and may read the ring.
    pub(super) fn refuse(&mut self) -> bool {
        let Some(socket) = self.socket.take() else {
            return true;
        };
        match Closing::begin(&self.page, socket) {
            Ok(closing) => self.closing = Some(closing),
            Err(CloseError::StillHeld(socket)) => {
                self.socket = Some(socket);
                return false;
            }
            Err(CloseError::Unknown(_) | CloseError::Uncounted(_)) => self.is_denied = true,
        }
        true
    }

    /// Packets from the group that the member has refused so far. `None` if the refused packets
    /// were not counted, or if the member never joined.
    pub(super) fn refused(&self) -> Option<u64> {
        let closing = self.closing.as_ref().filter(|it| it.has_joined())?;
        closing.refused()
    }

    /// Whether the member certainly is or was in the group; false while it is about to join.
    pub(super) fn has_joined(&self) -> bool {
        let rejecting = self.rejecting();
        let is_over = || rejecting.now.is_none() || self.has_taker();
        rejecting.has_begun
            && self
                .closing
                .as_ref()
                .map_or_else(is_over, Closing::has_joined)
    }

    /// Removes the member from the group and returns its account; `None` if it never joined.
    pub(super) fn settle(&mut self) -> Option<Account> {
        let was_never_in = self.closing.as_ref().is_some_and(|it| !it.has_joined());
        let closed = self.closing.take().map(Closing::finish);
        // The page also counts the packets that the member took between this process's last reading
        // and the member's end.
        self.read_page();
        let rejecting = self.rejecting();
        if was_never_in || !rejecting.has_begun {
            return None;
        }
        let counted = link::packets(self.ifindex).ok();
        if self.record.is_on_engine() {
            return Some(self.settled_by_engine(rejecting.at_most(counted)));
        }
        let Some(closed) = closed else {
            return Some(self.unheld(rejecting, counted));
        };
        // If the member never wrote counters on its page, they are 0 here, and `closed` contains
        // all packets.
        let counters = self.record.counters;
        let lost = closed.lost(&self.record);
        let [taken, inherited] = self.taken();
        Some(Account {
            received: Some(counters.received.saturating_add(closed.received)),
            dropped: Some(counters.dropped.saturating_add(closed.dropped)),
            taken,
            inherited,
            unread: lost.map(|lost| lost.unread),
            refused: self.refused_by_group(closed.refused),
            uncounted_at_most: rejecting.at_most(counted),
        })
    }

    /// The account of a member whose socket was not held. If the member ended before its socket
    /// could be held, it lost at most the packets that its device has counted since the join.
    fn unheld(&self, rejecting: Rejecting, counted: Option<u64>) -> Account {
        let account = self.account();
        let (dropped, taken) = (self.record.counters.dropped, self.record.taken);
        let since = counted.zip(rejecting.joined_at);
        let since = since.map(|(now, joined)| now.saturating_sub(joined));
        match (self.is_denied, since, taken) {
            (false, Some(since), Some(taken)) => {
                let received = taken.saturating_add(dropped);
                Account {
                    received: Some(received),
                    dropped: Some(dropped),
                    uncounted_at_most: Some(since.saturating_sub(received)),
                    ..account
                }
            }
            _ => Account {
                unread: None,
                refused: None,
                uncounted_at_most: None,
                ..account
            },
        }
    }
}

fn complaint(copy: usize, error: &io::Error) -> String {
    let lacks = lacks(error);
    format!(
        "if copy {copy} is killed, the number of packets that it left unread will be unknown: its socket can't be held ({error}); this needs {lacks}"
    )
}

fn lacks(error: &io::Error) -> &'static str {
    if is_lack_of_descriptors(error) {
        "more open files (ulimit -n)"
    } else {
        "the right to trace it: run this command as root, or with CAP_SYS_PTRACE"
    }
}
