//! Membership in a steered group: the member's slot and lifeline, and the work that its reader does
//! for other members.

mod leaving;
mod on_device;

use crate::guard::GroupLock;
use crate::kernel::Kernel;
use crate::lead;
use crate::record::{MemberCounters, WORDS, at};
use crate::shared::Shared;
use crate::slots::{self, KernelOps, Slots};
use crate::steered::SteerError;
use crate::table::State;
use crate::takeover::{self, ReadOut};
use fanpcap_buckets::Slot;
use fanpcap_engine::{Ledger, MemberIo};
use fanpcap_linux::file::shared::Word;
use fanpcap_linux::unix::ClosedLater;
use fanpcap_linux::wait::clock;
use fanpcap_reader::borrowed;
use fanpcap_reader::{GroupTasks, Takeover, TaskResult};
use on_device::AT_DEVICE_NS;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// How long to wait before the next try when another member holds the group's lock.
const BUSY: Duration = Duration::from_millis(1);

/// How long to wait after an error before the next try.
const FAILED: Duration = Duration::from_millis(100);

/// How long a member on packet sockets waits at most before it looks at its group again. Without
/// this limit, a member that was alone would not notice that other members have joined, have found
/// this member silent, and have taken its share.
const ALONE_NS: u64 = 2_000_000_000;

/// How many times in a row a member tries to follow the lead, and the pause between two attempts.
/// An attempt fails while another member holds the group's lock or changes the lead.
const FOLLOW_TRIES: u32 = 50;
const FOLLOW_PAUSE: Duration = Duration::from_micros(200);

/// How long to wait until another reader has taken the frame that it has claimed.
const CLAIMED_WITHIN: Duration = Duration::from_millis(1);

/// A member's part in its group. When the membership ends, its lifeline hangs up, and the other
/// members notice. The membership must end only after the member's socket is closed: after the
/// hang-up, other members close the group's duplicate of the socket and expect that no process has
/// the socket any more. On an engine that takes devices, the kernel may still have a duplicate of
/// the socket, which receives nothing.
#[derive(Debug)]
pub struct Membership {
    shared: Arc<Shared>,
    /// The objects that the members of the followed group share.
    lead: Option<Arc<Shared>>,
    /// The member's socket, by `SO_COOKIE`.
    cookie: u64,
    lock: GroupLock,
    /// The process that joined. A forked child may have a copy of this value.
    pid: u32,
    /// Whether to look after the group even if no descriptor is ready. True at first, and after an
    /// attempt that failed, or that found the lock held by another member.
    is_due: AtomicBool,
    /// How many times the socket has reported that the device went down. Counts only the reports
    /// that are not in the table yet.
    downs: AtomicU8,
    /// Rings of other members that this member has read to the end. It still has to vacate their
    /// slots, or to return the rings to their owners.
    read_out: Arc<Mutex<ReadOut>>,
    /// Words of the member's page: when the application looked for packets; how many packets were
    /// taken; how many packets other members took before the application first looked.
    looked: Option<[Word; 3]>,
    /// How many frames other members had read from the ring before the application first looked. 0
    /// again once the reader has fetched this number.
    skipped: AtomicU64,
    /// Whether the application has asked for the descriptor to wait on.
    is_asked: AtomicBool,
    /// Whether the application has just looked for packets for the first time. If it has, the
    /// members whose applications have never read them must lose their share. The value becomes
    /// false when they have lost it.
    is_first: AtomicBool,
    /// Whether the group's steering program gives a packet to several members.
    copies: bool,
    /// Whether the library has chosen the group's number, because no setting names a group.
    is_unnumbered: bool,
    /// The member's slot and its rings; `None` on packet sockets. The member keeps the slot as long
    /// as it lives.
    io: Option<(Slot, Box<dyn MemberIo>)>,
    /// Packets that had come to the group when this member last looked after the device.
    offered: AtomicU64,
    /// Since when no packets have come, or when the device was last looked after.
    quiet_ns: AtomicU64,
    /// The end of the member's lifeline that hangs up. It is only kept open: nothing is written to
    /// it.
    _lifeline: OwnedFd,
    /// The objects that the kernel releases slowly, once the group's last member departs. Dropped
    /// after all other fields, so that no descriptor of these objects is closed later. The ports
    /// of the member's reader may have such descriptors, too: whoever has both must drop every port
    /// first.
    later: OnceLock<ClosedLater>,
}

/// The rings that a member takes over, and how long to wait before the next attempt; `None` if no
/// further attempt is needed.
type LookedAfter = (Vec<Takeover>, Option<Duration>);

/// A member can't look after its group now. A library can't report why, so the member tries again.
struct Failed;

impl From<SteerError> for Failed {
    fn from(_: SteerError) -> Self {
        Self
    }
}

impl From<io::Error> for Failed {
    fn from(_: io::Error) -> Self {
        Self
    }
}

impl Membership {
    pub(crate) fn new(
        shared: Arc<Shared>,
        cookie: u64,
        lock: GroupLock,
        lifeline: OwnedFd,
        lead: Option<Arc<Shared>>,
    ) -> Self {
        Self {
            shared,
            lead,
            cookie,
            lock,
            pid: std::process::id(),
            is_due: AtomicBool::new(true),
            downs: AtomicU8::new(0),
            read_out: Arc::default(),
            looked: None,
            skipped: AtomicU64::new(0),
            is_asked: AtomicBool::new(false),
            is_first: AtomicBool::new(false),
            copies: false,
            is_unnumbered: false,
            io: None,
            _lifeline: lifeline,
            offered: AtomicU64::new(0),
            quiet_ns: AtomicU64::new(0),
            later: OnceLock::new(),
        }
    }

    /// Adds the slot and the rings of a member on an engine. If the group's steering program
    /// `copies` packets, members whose applications do not read packets yet keep their share: an
    /// application that reads late expects its own copies. `is_unnumbered` says whether the library
    /// has chosen the group's number.
    pub(crate) fn with_io(
        mut self,
        io: Option<(Slot, Box<dyn MemberIo>)>,
        copies: bool,
        is_unnumbered: bool,
    ) -> Self {
        (self.io, self.copies, self.is_unnumbered) = (io, copies, is_unnumbered);
        self
    }

    /// The membership of a member whose page has these words.
    pub(crate) fn with_page(self, words: &[Word; WORDS]) -> Self {
        let looked = [at::LOOKED_NS, at::TAKEN, at::BORROWED].map(|at| words[at].clone());
        Self {
            looked: Some(looked),
            ..self
        }
    }

    /// The member's slot and its rings; `None` on packet sockets.
    pub fn io(&self) -> Option<(u8, &dyn MemberIo)> {
        let (slot, io) = self.io.as_ref()?;
        Some((slot.0, &**io))
    }

    /// What became of the packets that have come to the group so far; `None` on packet sockets.
    pub fn ledger(&self) -> Option<Ledger> {
        self.shared.on_device.as_ref().map(|it| it.ledger())
    }

    /// Packets that the group's steering program has dropped since the group began.
    pub fn nowhere(&self) -> u64 {
        self.shared.table().nowhere()
    }

    /// The engine's counts for the member so far. `None` on packet sockets.
    pub fn counted(&self) -> Option<MemberCounters> {
        let (slot, _) = self.io.as_ref()?;
        let [received, dropped] = self.shared.counted(*slot)?;
        Some(MemberCounters { received, dropped })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The member's socket, by `SO_COOKIE`.
    pub(crate) fn cookie(&self) -> u64 {
        self.cookie
    }

    pub(crate) fn lock(&self) -> &GroupLock {
        &self.lock
    }

    /// The member's weight; `None` if other members have removed this member from the table.
    pub fn weight(&self) -> Option<u16> {
        let table = self.shared.table();
        let slot = table.slot_of(self.cookie)?;
        Some(table.row(slot).weight)
    }

    /// The member's class, 0 to 63.
    pub fn class(&self) -> u8 {
        let table = self.shared.table();
        let slot = table.slot_of(self.cookie);
        slot.map_or(0, |slot| table.row(slot).class)
    }

    /// False while the member still waits for its share.
    pub fn has_share(&self) -> bool {
        let table = self.shared.table();
        let slot = table.slot_of(self.cookie);
        slot.is_none_or(|slot| table.row(slot).state != State::Newcomer)
    }

    /// Notes that the application has asked for the descriptor to wait on. The first time, the
    /// member takes its share at once. Asking does not count as a look for packets, because the
    /// application may never read the handle.
    pub fn note_asked(&self) {
        if !self.is_asked.swap(true, Ordering::Relaxed) {
            self.change(|slots| slots.begin_share(self.cookie));
        }
    }

    /// Notes that the application looks for packets. From the application's first look on, no other
    /// member reads the ring.
    fn note_look(&self) {
        let Some([looked, taken, by_others]) = &self.looked else {
            return;
        };
        let Some(frames) = borrowed::take_back(looked, clock::monotonic_ns()) else {
            return;
        };
        by_others.set(frames);
        // Another member may still read the frame that it claimed last. Wait a moment until that
        // member has taken the frame.
        let end = Instant::now() + CLAIMED_WITHIN;
        while taken.get() < frames && Instant::now() < end {
            thread::yield_now();
        }
        self.skipped.store(frames, Ordering::Relaxed);
        self.is_first.store(!self.copies, Ordering::Relaxed);
    }

    /// Takes the share at once, for a member that the system's library reads. Our library can't
    /// notice when that library first looks for packets. The member never reads the ring of a dead
    /// member, so it need not wait until other members have taken over such rings.
    pub fn begin_share_unread(&self) {
        self.change(|slots| {
            slots.give_up_shares(self.cookie)?;
            slots.begin_share(self.cookie)
        });
    }

    /// Changes the group's slots as soon as no other member is changing them. Best effort: another
    /// attempt would fail too.
    fn change(&self, change: impl FnOnce(&mut Slots<'_, Kernel<'_>>) -> io::Result<bool>) {
        if let Ok(_guard) = self.lock.take() {
            let mut kernel = Kernel::of(&self.shared);
            let _ = change(&mut self.slots(&mut kernel));
        }
    }

    /// The group's slots. The caller holds the lock.
    fn slots<'a, G: KernelOps>(&'a self, kernel: &'a mut G) -> Slots<'a, G> {
        let lead = self.lead.as_ref().map(|lead| lead.table());
        Slots::new(self.shared.table(), kernel).behind(lead)
    }

    /// Whether the followed group has changed since this group last followed it.
    fn is_behind(&self) -> bool {
        let lead = self.lead.as_ref();
        lead.is_some_and(|lead| lead::is_behind(self.shared.table(), lead.table()))
    }

    /// Whether there is more to do than to answer newcomers.
    fn is_wanted(&self) -> bool {
        let is_due = self.is_due.load(Ordering::Relaxed);
        let has_news = self.downs.load(Ordering::Relaxed) > 0;
        let has_read_out = self.read_out.try_lock().is_ok_and(|it| !it.is_empty());
        let has_gone = self.due_ns() == Some(0);
        is_due
            || has_news
            || has_read_out
            || has_gone
            || self.is_behind()
            || self.shared.lifelines.is_ready().unwrap_or(true)
    }

    /// Nanoseconds until this member must look after other members; `None` if it need not.
    fn due_ns(&self) -> Option<u64> {
        slots::due_ns(self.shared.table(), self.cookie, clock::monotonic_ns())
    }

    /// Looks after the group. If this fails, also returns when to try again.
    fn try_look_after(&self) -> LookedAfter {
        match self.look_after() {
            Ok(Some((inherited, again))) => (inherited, again),
            Ok(None) => (Vec::new(), Some(BUSY)),
            Err(Failed) => (Vec::new(), Some(FAILED)),
        }
    }

    /// Takes the member's share, and takes over from members that are gone. Returns the rings that
    /// are taken over, and how long to wait before the next attempt if one is needed. `None` if
    /// another member holds the lock.
    fn look_after(&self) -> Result<Option<LookedAfter>, Failed> {
        let Some(guard) = self.lock.try_take()? else {
            return Ok(None);
        };
        let mut kernel = Kernel::of(&self.shared);
        let mut slots = self.slots(&mut kernel);
        let downs = self.downs.swap(0, Ordering::Relaxed);
        if downs > 0 {
            let noted = slots.note_downs(self.cookie, downs);
            noted.inspect_err(|_| _ = self.downs.fetch_add(downs, Ordering::Relaxed))?;
        }
        self.vacate(&mut slots)?;
        if slots.may_begin(self.cookie)? {
            slots.begin_share(self.cookie)?;
            if self.is_first.load(Ordering::Relaxed) {
                slots.replace_unread(self.cookie)?;
                self.is_first.store(false, Ordering::Relaxed);
            }
        }
        slots.look_for_silent(self.cookie)?;
        slots.level(self.cookie);
        slots.follow()?;
        let orphans = slots.take_over(self.cookie)?;
        let leaves_some =
            slots::leaves_to_others(self.shared.table(), self.cookie, clock::monotonic_ns());
        let inherited = orphans.into_iter().filter_map(|slot| self.take_over(slot));
        let inherited = inherited.collect();
        let again = match self.clear_device(&guard) {
            Ok(true) => leaves_some.then_some(BUSY),
            Ok(false) => Some(BUSY),
            Err(Failed) => Some(FAILED),
        };
        Ok(Some((inherited, again)))
    }

    /// Vacates the slots whose rings this member has read to the end. Returns borrowed rings to
    /// their owners.
    fn vacate<G: KernelOps>(&self, slots: &mut Slots<'_, G>) -> io::Result<()> {
        // Do not wait for the lock: no other thread takes it, but in a forked child it may stay
        // locked forever.
        let Ok(mut read_out) = self.read_out.try_lock() else {
            return Ok(());
        };
        while let Some((cookie, final_counters)) = read_out.last() {
            match final_counters {
                Some(final_counters) => slots.vacate(*cookie, final_counters)?,
                None => slots.give_back(*cookie, self.cookie)?,
            }
            read_out.pop();
        }
        Ok(())
    }

    /// Takes over the ring in a slot. The slot's member is gone, or its application has never read
    /// the ring. Gives up a ring that can't be read, or whose member had another class.
    fn take_over(&self, slot: Slot) -> Option<Takeover> {
        let table = self.shared.table();
        let row = table.row(slot);
        if row.state == State::Newcomer {
            let borrowed = takeover::borrow(&self.shared, &self.read_out, slot);
            if borrowed.is_none() {
                let mut kernel = Kernel::of(&self.shared);
                // An error does no harm: the owner has begun to look for packets, and keeps its
                // ring.
                let _ = self.slots(&mut kernel).give_back(row.cookie, self.cookie);
            }
            return borrowed;
        }
        let inherited = match slots::is_of_class(table, self.cookie, &table.row(slot)) {
            true => takeover::take_over(&self.shared, &self.read_out, slot, self.cookie),
            false => Err(takeover::give_up(&self.shared, slot)),
        };
        match inherited {
            Ok(takeover) => Some(takeover),
            Err(unknown) => {
                let cookie = self.shared.table().row(slot).cookie;
                let mut kernel = Kernel::of(&self.shared);
                let mut slots = self.slots(&mut kernel);
                // If this fails, the row stays as it is, and the next member tries again.
                let _ = slots.vacate(cookie, &unknown);
                None
            }
        }
    }
}

impl GroupTasks for Membership {
    fn waits_on(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.lifelines.as_fd())
    }

    fn attend(&self) -> TaskResult {
        self.note_look();
        // Answer first: a newcomer holds the group's lock while it waits for an answer. A forked
        // child may answer as well, because it hands out the same descriptors.
        let answered = self.shared.answer();
        let (mut inherited, mut again) = match self.is_wanted() {
            true => self.try_look_after(),
            false => (Vec::new(), None),
        };
        // Try to follow the lead at once, several times: a busy reader calls `attend` again only a
        // tenth of a second later. Until then this group and its lead would give the packets of one
        // flow to two members.
        for _ in 0..FOLLOW_TRIES {
            if !self.is_behind() {
                break;
            }
            thread::sleep(FOLLOW_PAUSE);
            let (more, then) = self.try_look_after();
            inherited.extend(more);
            again = then;
        }
        self.is_due.store(again.is_some(), Ordering::Relaxed);
        let again = again.or(answered.err().map(|_| FAILED));
        // If this group is still behind, another member is changing this group or the lead: try
        // again soon.
        let again = again.or(self.is_behind().then_some(BUSY));
        // Publish the group's ledger even if this member got no packets: the engine also counts
        // packets that no member gets.
        self.shared.renew_ledger();
        let on_device = self.shared.on_device.as_ref();
        let own_ns = on_device.map_or(ALONE_NS, |_| AT_DEVICE_NS);
        let latest = self.due_ns().map_or(own_ns, |due_ns| due_ns.min(own_ns));
        TaskResult {
            inherited,
            holds: false,
            again,
            latest: Some(Duration::from_nanos(latest)),
            is_lost: self.has_lost_device(),
            skipped: Some(self.skipped.swap(0, Ordering::Relaxed)).filter(|&frames| frames > 0),
        }
    }

    fn note_down(&self) {
        self.downs.fetch_add(1, Ordering::Relaxed);
    }
}
