//! Shows a steered group by its table, to processes that are not members. Reading the table writes
//! nothing and takes no lock.

use crate::found::{self, FindError, STEP};
use crate::identity::Identity;
use crate::page::MemberId;
use crate::record::Record;
use crate::shared::{self, Shared, group_key};
use crate::slots::digest;
pub use crate::table::{Elephant, FinalCounters, Leveled, State};
use crate::table::{Journal, Part, Row, Table, at};
use fanpcap_buckets::layout::SLOTS;
pub use fanpcap_engine::Ledger;
use fanpcap_linux::memory::Memory;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// The table of a steered group, mapped by this process.
#[derive(Debug)]
pub struct GroupTable {
    memory: Memory,
    key: u64,
}

/// The contents of the table at one moment.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The slots, each of which has one socket in the kernel's array.
    pub places: Vec<Place>,
    /// Sums over the members that are gone.
    pub gone: FinalCounters,
    /// How many members have been succeeded by members with the same names.
    pub takeovers: u64,
    /// How many changes of slots or buckets there have been.
    pub changes: u64,
    /// The last change that moved buckets; `None` if no bucket has moved yet.
    pub moved: Option<Moved>,
    /// The ledger of a group on an engine, as a member last published it.
    pub ledger: Option<Ledger>,
    /// Packets that the steering program has dropped since the group began. On an engine, the
    /// ledger's count; `None` if no member has published the ledger yet.
    pub nowhere: Option<u64>,
    /// The result of the last round of a balanced group.
    pub leveled: Option<Leveled>,
    /// The change under way. Its author may have died.
    pub under_way: Option<UnderWay>,
}

/// A slot, and its member.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The slot's number, which is the socket's position in the kernel's array.
    pub slot: u8,
    /// The slot's state.
    pub state: State,
    /// The member whose socket this is or was.
    pub member: MemberId,
    /// The member's process id, in the process's own PID namespace.
    pub pid: u32,
    /// How many buckets the slot owns.
    pub buckets: usize,
    /// The member's weight; 0: the member was drained, or its buckets were given away after its
    /// death.
    pub weight: u16,
    /// The member's class. The slot owns buckets of this class.
    pub class: u8,
    /// When this state began, nanoseconds of `CLOCK_MONOTONIC`.
    pub since_ns: u64,
    /// The slot of the member that reads this slot's ring after the death of the ring's owner, or,
    /// for a placeholder, of the member that has read it last; `None` if no member does or did.
    pub taker: Option<u8>,
    /// The digest of the member's name; 0: the member has no name.
    pub name: u64,
}

/// Buckets that have moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// How many buckets have moved.
    pub buckets: u64,
    /// When they moved, nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
}

/// A change under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnderWay {
    /// A newcomer joins into this slot.
    Join {
        /// The slot.
        slot: u8,
        /// The newcomer's process.
        pid: u32,
        /// When the join began, nanoseconds of `CLOCK_MONOTONIC`.
        since_ns: u64,
    },
    /// Buckets move.
    Balance,
    /// This slot becomes a placeholder.
    Vacate(u8),
    /// This slot, which is the last one, is given up.
    Trim(u8),
    /// Slots get new numbers.
    Renumber,
    /// The second slot gets all buckets and ranks, and the sticky id, of the first slot.
    Succeed(u8, u8),
}

impl UnderWay {
    fn of(table: Table<'_>) -> Option<Self> {
        Some(match table.journal() {
            Journal::Nothing => return None,
            Journal::Join(slot) => {
                let Row { pid, since_ns, .. } = table.newcomer();
                let slot = slot.0;
                Self::Join {
                    slot,
                    pid,
                    since_ns,
                }
            }
            Journal::Balance => Self::Balance,
            Journal::Vacate(slot, _) => Self::Vacate(slot.0),
            Journal::Trim(slot) => Self::Trim(slot.0),
            Journal::Renumber => Self::Renumber,
            Journal::Succeed(from, to) => Self::Succeed(from.0, to.0),
        })
    }
}

/// The digest of a member's name, as in [`Place::name`]. If several members have the same name, the
/// first one has this digest, and the others have different digests.
pub fn name_digest(name: &str) -> u64 {
    digest(name)
}

/// How often to read the table at most until it does not change during the reading.
const LOOKS: usize = 8;

/// How long to wait for sockets that are being closed.
const FOR_SOCKETS: Duration = Duration::from_millis(300);

impl GroupTable {
    /// Finds the table of a group in the calling thread's network namespace, in the way that a
    /// newcomer finds it. `for_members` is the time that members may take to answer at the group's
    /// rendezvous. `None` when the group has no steering program or no member.
    ///
    /// # Errors
    /// Why the table can't be found, in words.
    pub fn find(ifindex: u32, group: u16, for_members: Duration) -> Result<Option<Self>, String> {
        let outside = Identity::outside(group, ifindex);
        let (wait, end) = (FOR_SOCKETS + for_members, Instant::now() + FOR_SOCKETS);
        let memory = loop {
            match found::search(&outside, ifindex, wait, shared::table_alone) {
                Err(FindError::Pageless(..)) if Instant::now() < end => thread::sleep(STEP),
                memory => break memory.map_err(|it| it.to_string())?,
            }
        };
        let key = group_key(ifindex, group);
        Ok(memory.map(|memory| Self { memory, key }))
    }

    /// The table of the group of the member with this page, if the caller may trace the member's
    /// process.
    pub fn of_member(ifindex: u32, group: u16, record: &Record) -> Option<Self> {
        let key = group_key(ifindex, group);
        let memory = found::take_over(record, key, shared::table_alone);
        Some(Self {
            memory: memory.ok()??,
            key,
        })
    }

    /// The table among the objects that the group's members share, if it can be mapped once more.
    pub(crate) fn of(shared: &Shared, key: u64) -> Option<Self> {
        let memory = shared.table_alone().ok()?;
        Some(Self { memory, key })
    }

    /// Packets that the steering program has dropped since the group began; on an engine, as a
    /// member last published the number.
    pub fn nowhere(&self) -> u64 {
        shared::table(&self.memory).nowhere()
    }

    /// Whether a slot has or had this member.
    pub fn has(&self, member: MemberId) -> bool {
        let mut rows = shared::table(&self.memory).rows();
        rows.any(|(_, row)| row.member == member.socket())
    }

    /// Whether `members` has all members that the group has had so far.
    pub fn has_had_only(&self, members: &BTreeSet<MemberId>) -> bool {
        shared::table(&self.memory).has_had_only(members)
    }

    /// Reads the table; `None` if the table no longer belongs to this group. If the table changes
    /// during all of several readings, returns the last reading.
    pub fn look(&self) -> Option<View> {
        let table = shared::table(&self.memory);
        let mut view = None;
        for _ in 0..LOOKS {
            let stamp = || (table.get(at::GENERATION), table.get(at::JOURNAL));
            let before = stamp();
            view = Some(read(table));
            if before == stamp() {
                break;
            }
        }
        view.filter(|_| table.is_of(self.key))
    }
}

pub(crate) fn read(table: Table<'_>) -> View {
    let mut owned = [0; SLOTS];
    // In a part without ranks no member owns a bucket yet: the zeros there do not stand for slot 0.
    let parts = table.used_classes().into_iter().map(|it| table.part(it));
    for part in parts.filter(Part::has_ranks) {
        for owner in part.buckets {
            owned[usize::from(owner.load(Ordering::Relaxed))] += 1;
        }
    }
    let rows: Vec<Row> = table.rows().map(|(_, row)| row).collect();
    let place = |(slot, row): (u8, &Row)| Place {
        slot,
        state: row.state,
        member: MemberId::of_socket(row.member),
        pid: row.pid,
        buckets: owned[usize::from(slot)],
        weight: row.weight,
        class: row.class,
        since_ns: row.since_ns,
        taker: taker(&rows, row),
        name: row.name,
    };
    let [buckets, at_ns] = [at::MOVED, at::MOVED_NS].map(|at| table.get(at));
    View {
        places: (0..=u8::MAX).zip(&rows).map(place).collect(),
        gone: table.gone(),
        takeovers: table.takeovers(),
        changes: table.get(at::GENERATION),
        moved: (at_ns > 0).then_some(Moved { buckets, at_ns }),
        ledger: table.ledger(),
        nowhere: is_counted(table).then(|| table.nowhere()),
        leveled: table.leveled(),
        under_way: UnderWay::of(table),
    }
}

/// Whether the table has the number of packets that the steering program has dropped.
fn is_counted(table: Table<'_>) -> bool {
    table.get(at::ENGINE) == 0 || table.ledger().is_some()
}

fn taker(rows: &[Row], row: &Row) -> Option<u8> {
    let is_inherited = matches!(row.state, State::TakenOver | State::Vacant);
    let has_taker = is_inherited && row.taker != 0 && row.taker != row.cookie;
    let mut rows = (0..=u8::MAX).zip(rows).filter(|_| has_taker);
    rows.find_map(|(slot, taker)| (taker.cookie == row.taker).then_some(slot))
}
