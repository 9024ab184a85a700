//! The selection of a node in the kernel: its BPF program and its maps.

mod reading;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Result, anyhow};
use fanpcap_bpf::{MapKind, Object, ProgramKind};
use fanpcap_buckets::layout::BUCKETS;
use fanpcap_linux::bpf::{
    self, Attached, Hook, LoadError, Loaded, LoadedProgram, ObjectArray, ObjectId, Table,
};
use fanpcap_select::in_line::{Kind, place};
use fanpcap_select::layout::{CONTROL_MAP, COUNTS_MAP, Lanes, NEXT_MAP, POOL_MAP, control, counts};
use fanpcap_select::{Action, Claim, Claims, Control, Program};
use fanpcap_xdp::PoolArray;
pub use reading::Counts;

/// A node's selection on one of its devices. All devices of the node share the maps. An attached
/// selection runs while a process has its link, its program array and its pool open.
#[derive(Debug)]
pub struct Selector {
    program: LoadedProgram,
    control: Arc<Table>,
    counts: Arc<Table>,
    lanes: Lanes,
    ends: Destination,
}

/// Where this node's packets go.
#[derive(Clone, Debug)]
enum Destination {
    Host,
    /// The packets go to the BPF program in this array, or to the host if the array is empty.
    Next(Arc<ObjectArray>),
    /// The packets go to the pool, which is in the array.
    Pool(Arc<(ObjectArray, PoolArray)>),
}

/// The last beacon with an announced number ([`Selector::announce`]). Others are not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastBeacon {
    /// The sequence of the beacon.
    pub sequence: u64,
    /// When the beacon was sent, in nanoseconds of TAI.
    pub sent_ns: u64,
    /// When the beacon came, in nanoseconds of `CLOCK_MONOTONIC`.
    pub came_ns: u64,
}

const NAME: &str = "fanpcap_select";

impl Selector {
    /// Loads a selection. It lets all packets pass until it has a table. `pool` is the size of the
    /// node's pool in bytes, if it should not have the usual size.
    ///
    /// # Errors
    /// Fails if the kernel refuses the selection, or if it can't be compiled, which is a bug.
    pub fn load(program: &Program, pool: Option<u32>) -> Result<Self> {
        let object = compile(program)?;
        Self::load_object(&object, program, pool)
    }

    /// Like [`Selector::load`], but passes this node's packets to the BPF program in `next`.
    ///
    /// # Errors
    /// Fails if the kernel refuses the selection, or if it can't be compiled, which is a bug.
    pub fn load_before(program: &Program, next: ObjectArray) -> Result<Self> {
        let object = compile(program)?;
        Self::load_ends(&object, program.lanes, Destination::Next(next.into()))
    }

    /// Loads the selection for one more device. It selects by the same table and counts with the
    /// same counters. `next` is this device's own array, used as in [`Selector::load_before`].
    ///
    /// # Errors
    /// Fails as [`Selector::load`] does.
    pub fn load_beside(&self, program: &Program, next: Option<ObjectArray>) -> Result<Self> {
        let tables = (Arc::clone(&self.control), Arc::clone(&self.counts));
        let ends = next.map_or_else(|| self.ends.clone(), |next| Destination::Next(next.into()));
        Self::load_on(&compile(program)?, program.lanes, tables, ends)
    }

    /// Whether both selections use the same table.
    pub fn is_beside(&self, other: &Self) -> bool {
        let [own, others] = [self, other].map(|it| ObjectId::of_map(it.control.as_fd()).ok());
        own.is_some() && own == others
    }

    /// Like [`Selector::load`], but with the BPF program `object` on the same maps, for tests.
    ///
    /// # Errors
    /// Fails if the kernel refuses the selection, or if it can't be compiled, which is a bug.
    pub fn load_object(object: &Object, program: &Program, pool: Option<u32>) -> Result<Self> {
        let ends = Destination::create(program.action, pool).map_err(of_map)?;
        Self::load_ends(object, program.lanes, ends)
    }

    fn load_ends(object: &Object, lanes: Lanes, ends: Destination) -> Result<Self> {
        let table = |name, len: usize| {
            let len = u32::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
            Table::create_rows(name, len, 1)
        };
        let control = table(CONTROL_MAP, control::LEN).map_err(of_map)?;
        let counts = table(COUNTS_MAP, counts::len(lanes)).map_err(of_map)?;
        Self::load_on(object, lanes, (control.into(), counts.into()), ends)
    }

    fn load_on(
        object: &Object,
        lanes: Lanes,
        (control, counts): (Arc<Table>, Arc<Table>),
        ends: Destination,
    ) -> Result<Self> {
        let mut given = vec![(CONTROL_MAP, control.as_fd()), (COUNTS_MAP, counts.as_fd())];
        match &ends {
            Destination::Host => {}
            Destination::Next(next) => given.push((NEXT_MAP, next.as_fd())),
            Destination::Pool(pool) => given.push((POOL_MAP, pool.0.as_fd())),
        }
        let loaded = Loaded::load_with(object, NAME, &given).map_err(of_kernel)?;
        Ok(Self {
            program: loaded.into_program(),
            control,
            counts,
            lanes,
            ends,
        })
    }

    /// Opens a selection that another process has loaded, by its [`Selector::descriptors`]. `lanes`
    /// and `action` must be those with which the selection was loaded.
    ///
    /// # Errors
    /// Fails with `InvalidData` if the descriptors are not those of such a selection.
    pub fn open(descriptors: Vec<OwnedFd>, lanes: Lanes, action: Action) -> io::Result<Self> {
        let mut all = descriptors.into_iter();
        let mut next = || all.next().ok_or(io::ErrorKind::InvalidData);
        let (program, control, counts) = (next()?, next()?, next()?);
        let table = |fd, len: usize| {
            let len = u32::try_from(len).map_err(|_| io::ErrorKind::InvalidData)?;
            Table::open_rows(fd, len)
        };
        let ends = match action {
            Action::Pass => Destination::Host,
            Action::PassToNext => {
                Destination::Next(ObjectArray::open(next()?, MapKind::ProgArray, 1)?.into())
            }
            Action::Ship { shape, .. } => {
                let array = ObjectArray::open(next()?, MapKind::MapArray, 1)?;
                Destination::Pool((array, PoolArray::open(next()?, shape.lanes())?).into())
            }
        };
        let opened = Self {
            program: LoadedProgram::open(program, ProgramKind::Xdp)?,
            control: table(control, control::LEN)?.into(),
            counts: table(counts, counts::len(lanes))?.into(),
            lanes,
            ends,
        };
        opened.complete_change();
        Ok(opened)
    }

    /// All descriptors of the selection, for [`Selector::open`] in another process.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let mut all = vec![
            self.program.as_fd(),
            self.control.as_fd(),
            self.counts.as_fd(),
        ];
        match &self.ends {
            Destination::Host => {}
            Destination::Next(next) => all.push(next.as_fd()),
            Destination::Pool(pool) => all.extend([pool.0.as_fd(), pool.1.as_fd()]),
        }
        all
    }

    /// Attaches the BPF program to a device of the calling thread's network namespace. When the
    /// returned link is closed, the BPF program is detached.
    ///
    /// # Errors
    /// Fails as [`LoadedProgram::attach`] does.
    pub fn attach(&self, ifindex: u32, hook: Hook) -> io::Result<Attached> {
        self.program.attach(ifindex, hook)
    }

    /// The BPF program.
    pub fn program(&self) -> &LoadedProgram {
        &self.program
    }

    /// The pool with this node's packets; `None` in distribution mode.
    pub fn pool(&self) -> Option<&PoolArray> {
        match &self.ends {
            Destination::Host | Destination::Next(_) => None,
            Destination::Pool(pool) => Some(&pool.1),
        }
    }

    /// Makes the selection use these claims from now on, and mark captured packets with `mark`.
    /// Cancels a prepared table. First waits some milliseconds, until the BPF program has processed
    /// all packets that still use the table that will be replaced.
    pub fn switch(&self, claims: &Claims, mark: u32) {
        self.forget_prepared();
        let next = self.write_idle(claims, mark);
        self.store(control::WORD, next.word());
    }

    /// Makes the selection use these claims when a topology update with an announced number comes.
    /// Replaces a table that was prepared before.
    pub fn prepare(&self, claims: &Claims, mark: u32) {
        self.forget_prepared();
        let next = self.write_idle(claims, mark);
        self.store(control::NEXT, next.word());
    }

    /// Cancels a prepared table, and waits until the BPF program processes no frame that could put
    /// it into use. A table that is already in use stays in use, as the control word shows.
    pub fn take_back(&self) {
        self.forget_prepared();
        bpf::wait_for_programs();
    }

    /// Announces the frame with this sequence. If `number` is 0, the frame is not accepted.
    pub fn announce(&self, kind: Kind, sequence: u64, number: u64) {
        let numbers = match kind {
            Kind::Beacon => control::BEACONS,
            Kind::Update => control::UPDATES,
        };
        self.store(numbers + 8 * place(sequence), number);
    }

    /// The control word.
    pub fn control(&self) -> Control {
        Control::of_word(self.load_word(control::WORD))
    }

    /// The last beacon; `None` before the first beacon.
    pub fn last_beacon(&self) -> Option<LastBeacon> {
        let beacons = self.cause(counts::BEACONS);
        let read = || {
            let at = |place: usize| self.load_word(control::LAST + 8 * place);
            LastBeacon {
                sequence: at(0),
                sent_ns: at(1),
                came_ns: at(2),
            }
        };
        // If a beacon comes while its values are read, they change. So they are read again.
        let mut last = read();
        for _ in 0..8 {
            let again = read();
            if again == last {
                break;
            }
            last = again;
        }
        (beacons > 0).then_some(last)
    }

    /// Cancels a prepared table. The BPF program may be processing a packet that still puts the
    /// table into use. So the writer waits until that packet has been processed.
    fn forget_prepared(&self) {
        self.store(control::NEXT, 0);
    }

    /// Writes the table that is not in use. Returns the control word that puts this table into use.
    ///
    /// If a claim begins the counting of a bucket, this table's count is subtracted from the
    /// bucket's sums. If a claim ends it, the count is added. So neither changes the number of
    /// captured packets.
    fn write_idle(&self, claims: &Claims, mark: u32) -> Control {
        bpf::wait_for_programs();
        let idle = self.control().idle();
        let counted = self.counted(idle);
        for (bucket, (claim, counted)) in claims.bytes().zip(counted.iter()).enumerate() {
            let place = idle * BUCKETS + bucket;
            let before = self.claim(place);
            let taken_along = |sums: usize, is_counted: fn(u8) -> bool| {
                let sum = self.load_word(sums + 8 * bucket);
                match (is_counted(before), is_counted(claim)) {
                    (true, false) => sum.wrapping_add(*counted),
                    (false, true) => sum.wrapping_sub(*counted),
                    (true, true) | (false, false) => sum,
                }
            };
            if before != claim {
                let sum = taken_along(control::SUMS, is_own);
                let shared = taken_along(control::SHARED, is_shared);
                self.change(place as u64, claim.into(), [sum, shared]);
            }
        }
        Control::new(idle, mark)
    }

    /// Changes a claim and the sums of its bucket. If the process dies within a change,
    /// [`Selector::open`] completes the change.
    fn change(&self, place: u64, claim: u64, [sum, shared]: [u64; 2]) {
        for (at, word) in [(8, place), (16, claim), (24, sum), (32, shared), (0, 1)] {
            self.store(control::CHANGE + at, word);
        }
        self.complete_change();
    }

    fn complete_change(&self) {
        let [begun, place, claim, sum, shared] =
            [0, 8, 16, 24, 32].map(|at| self.load_word(control::CHANGE + at));
        let place = usize::try_from(place)
            .ok()
            .filter(|place| *place < 2 * BUCKETS);
        if let (1, Some(place), Ok(claim)) = (begun, place, u8::try_from(claim)) {
            self.store(control::SUMS + 8 * (place % BUCKETS), sum);
            self.store(control::SHARED + 8 * (place % BUCKETS), shared);
            if let Some(byte) = self.control.bytes().get(control::TABLES + place) {
                byte.store(claim, Ordering::SeqCst);
            }
        }
        self.store(control::CHANGE, 0);
    }

    /// The claim at `place` in the two tables.
    fn claim(&self, place: usize) -> u8 {
        let byte = self.control.bytes().get(control::TABLES + place);
        byte.map_or(0, |byte| byte.load(Ordering::SeqCst))
    }

    fn store(&self, at: usize, word: u64) {
        if let Some([place]) = self.control.words(at, 1) {
            place.store(word, Ordering::SeqCst);
        }
    }

    fn load_word(&self, at: usize) -> u64 {
        let words = self.control.words(at, 1).unwrap_or_default();
        words.first().map_or(0, |word| word.load(Ordering::SeqCst))
    }
}

/// Whether this node captures packets with this claim.
fn is_own(claim: u8) -> bool {
    claim != Claim::Elsewhere as u8
}

/// Whether another node also captures the packets of a bucket with this claim (in a union).
fn is_shared(claim: u8) -> bool {
    claim == Claim::Shared as u8
}

fn compile(program: &Program) -> Result<Object> {
    let object = program.object();
    object.map_err(|error| anyhow!("the selection can't be compiled: {error}"))
}

fn of_map(error: io::Error) -> anyhow::Error {
    of_kernel(LoadError::of_map(ProgramKind::Xdp, error))
}

fn of_kernel(error: LoadError) -> anyhow::Error {
    anyhow!("the kernel does not load the selection: {error}")
}

impl Destination {
    fn create(action: Action, pool: Option<u32>) -> io::Result<Self> {
        Ok(match action {
            Action::Pass => Self::Host,
            Action::PassToNext => {
                Self::Next(ObjectArray::create(NAME, MapKind::ProgArray, 1)?.into())
            }
            Action::Ship { shape, .. } => {
                let pool = PoolArray::create(pool, shape)?;
                let array = PoolArray::places(shape, 1)?;
                array.put(0, &[pool.as_fd()])?;
                Self::Pool((array, pool).into())
            }
        })
    }
}
