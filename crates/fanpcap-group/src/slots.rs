//! Changes the slots of a steered group when members join, leave or die.
//!
//! The kernel's array of a group's sockets has no holes. When a socket is closed, the array's last
//! socket moves into its position. So a living member would get another slot, and packets of other
//! flows (net/packet/af_packet.c, `__fanout_unlink()`). So the socket of a member that is gone
//! stays open: the descriptor store has a duplicate of the socket, which is now a placeholder. A
//! newcomer enters at the array's end. Then the placeholder's socket is closed, and the newcomer's
//! socket moves into the slot. No other member's slot changes.
//!
//! On the XDP engine members have classes. Each class has its own buckets and ranks, which the
//! members of the class share. Members take over only rings of their own class (`classes`).
//!
//! If a group has several devices, the kernel's groups on the further devices follow the kernel's
//! group on the first device (`following`). The groups of a poller on several devices stand beside
//! each other (`beside`). The members of a balanced group level their loads (`rounds`).
//!
//! A named member that is gone keeps its buckets for a while, in which a successor with its name
//! may come (`succession`).
//!
//! A process that makes a change holds the group's lock. If the process dies during a change, the
//! change's journal stays in the table. The next holder of the lock first completes that change.

mod relinked;
mod classes;
mod silence;
mod unread;
mod rounds;
mod succession;
mod weights;
mod following;
mod successors;
mod beside;
mod placeholders;
mod joining;
mod memberless;

use crate::lead::Lead;
use crate::table::{Journal, Part, Row, State, Table, at};
pub use beside::Beside;
pub(crate) use classes::{is_of_class, leaves_to_others, succeeds};
use fanpcap_buckets::{Share, Slot};
pub(crate) use joining::Unjoined;
pub(crate) use silence::{CHECK_NS, SILENT_NS};
use std::io;
pub(crate) use succession::{digest, due_ns};
pub(crate) use successors::due_of_successor_ns;
pub(crate) use weights::Weighed;

/// The effects of changes outside of the table: on the kernel's array, and on the descriptor store.
pub(crate) trait KernelOps {
    /// Why the kernel does not let a socket into the group.
    type Refused;

    /// Called before each step of a change: a test kills the process here.
    fn step(&mut self) {}

    /// Nanoseconds of `CLOCK_MONOTONIC`.
    fn now_ns(&self) -> u64;

    /// Puts the newcomer's lifeline into the descriptor store, and then the newcomer's socket.
    fn deposit(&mut self) -> io::Result<()>;

    /// Lets the newcomer's socket enter the group, at the array's end. If an engine puts each
    /// slot's packets into the rings of the slot's member (XDP), this also directs the packets for
    /// `slot` into the newcomer's rings.
    fn enter(&mut self, slot: Slot) -> Result<(), Self::Refused>;

    /// If an engine puts each slot's packets into the rings of the slot's member (XDP), stops the
    /// packets for this slot.
    fn leave(&mut self, slot: Slot) -> io::Result<()>;

    /// Whether a socket has entered the group; `None` if the socket is not in the descriptor store.
    fn has_entered(&mut self, cookie: u64) -> io::Result<Option<bool>>;

    /// Removes a socket from the descriptor store. If the socket's member is gone, the socket must
    /// have left the group afterwards. If it has not left the group, another process has the
    /// socket, and the call fails. `member` is the socket's inode.
    fn withdraw(&mut self, cookie: u64, member: u64) -> io::Result<()>;

    /// Removes a lifeline from the descriptor store.
    fn cut(&mut self, cookie: u64) -> io::Result<()>;

    /// The sockets of members whose lifelines are in the descriptor store and have not hung up.
    fn living(&mut self) -> io::Result<Vec<u64>>;

    /// Waits until packets in flight to the slots' former owners are in their rings.
    fn settle(&mut self) -> io::Result<()>;

    /// The sockets of members and of the newcomer on which `ENETDOWN` is pending, because the
    /// device was down.
    fn told(&mut self) -> io::Result<Vec<u64>>;

    /// The group's sockets in the order in which the kernel links them after the device was down;
    /// `None` where slots are not positions of the kernel's array.
    fn order(&mut self) -> io::Result<Option<Vec<u64>>>;

    /// Makes a socket in the descriptor store reject all packets from now on.
    fn refuse(&mut self, cookie: u64) -> io::Result<()>;

    /// Whether the ring of a socket in the descriptor store is half full or unreadable.
    fn is_half_full(&mut self, cookie: u64) -> bool;

    /// The sockets in the descriptor store whose rings have unread packets. The number beside each
    /// socket changes when the reader of the ring takes a packet.
    fn unread(&mut self) -> io::Result<Vec<(u64, u64)>>;

    /// Lets other members read the ring of a socket in the descriptor store, until the ring's owner
    /// reads it. Returns false if the owner has already read the ring, or if other members can't
    /// read it.
    fn borrow(&mut self, cookie: u64) -> io::Result<bool>;

    /// The table of the group beside this one that decides about members of both (`beside`).
    fn beside(&self) -> Option<Table<'_>> {
        None
    }
}

/// A group's slots. The owner of this value holds the group's lock.
#[derive(Debug)]
pub(crate) struct Slots<'a, G> {
    table: Table<'a>,
    kernel: &'a mut G,
    /// The table of the group that this group follows.
    lead: Option<Table<'a>>,
}

impl<'a, G: KernelOps> Slots<'a, G> {
    pub(crate) fn new(table: Table<'a>, kernel: &'a mut G) -> Self {
        Self {
            table,
            kernel,
            lead: None,
        }
    }

    /// Completes a change that another process left unfinished.
    pub(crate) fn repair(&mut self) -> io::Result<()> {
        match self.table.journal() {
            Journal::Nothing => return Ok(()),
            Journal::Join(slot) => return self.repair_join(slot),
            Journal::Balance => self.finish_balance(),
            Journal::Vacate(slot, sums) => self.finish_vacating(slot, sums),
            Journal::Trim(slot) => return self.finish_trim(slot),
            Journal::Renumber => self.finish_renumbering(),
            Journal::Succeed(from, to) => self.finish_succession(from, to),
        }
        Ok(())
    }

    /// Gives the member `own` its share if it is a newcomer. Returns false if it is not.
    pub(crate) fn begin_share(&mut self, own: u64) -> io::Result<bool> {
        self.repair()?;
        let Some(slot) = self.table.slot_of(own) else {
            return Ok(false);
        };
        let row = self.take_back(slot)?;
        let is_newcomer = row.state == State::Newcomer;
        if let Some(from) = self
            .predecessor(&row)
            .filter(|_| is_newcomer && row.weight > 0)
        {
            self.note(Journal::Succeed(from, slot));
            self.finish_succession(from, slot);
        } else if is_newcomer {
            self.note(Journal::Balance);
            self.set_state(slot, State::Live);
            self.finish_balance();
        }
        Ok(is_newcomer)
    }

    /// Handles the departure of a member that is about to close its handle. Its share and its ring
    /// go to other members, or wait for its successor. Usually another member takes the ring later,
    /// and that member then gives the departed member's buckets to the members of the class. But if
    /// all remaining members of the class are without a share, they get these buckets at once. None
    /// of them looks for packets yet, so for a long time none would take the ring. Meanwhile
    /// packets would have to pass the ring's filter, which may differ from these members' filters.
    pub(crate) fn depart(&mut self, own: u64) -> io::Result<()> {
        self.repair()?;
        let Some(slot) = self.table.slot_of(own) else {
            return Ok(());
        };
        let row = self.table.row(slot);
        if !matches!(row.state, State::Live | State::Newcomer) {
            return Ok(());
        }
        let left = succession::left_by(self.table, &row);
        self.change_row(slot, &left);
        let others = classes::members(self.table, row.class).into_iter();
        let states: Vec<State> = others.map(|slot| self.table.row(slot).state).collect();
        if !states.contains(&State::Live) {
            match left.keeps() && states.contains(&State::Newcomer) {
                true => self.give_away(vec![(slot, self.table.row(slot))]),
                false => self.balance(),
            }
        }
        Ok(())
    }

    /// Gives away the buckets of members that are gone. Makes the member `own` read the rings that
    /// nobody reads: the rings of members that are gone, and the rings of members whose
    /// applications have never read them. Returns the slots of these rings, into which no more
    /// packets come.
    pub(crate) fn take_over(&mut self, own: u64) -> io::Result<Vec<Slot>> {
        self.prepare()?;
        let living = self.mark_gone(own)?;
        self.look_after_awaited(&living)?;
        // Use one reading of the clock for buckets and rings. With two readings, a ring could
        // become due between them: `own` would take the ring, but nobody would give away the
        // buckets of the ring's member.
        let now_ns = self.kernel.now_ns();
        self.share_out(own, now_ns);
        let orphans = self.orphans_for(own, now_ns);
        if orphans.is_empty() {
            return Ok(Vec::new());
        }
        self.kernel.settle()?;
        let mut inherited = Vec::new();
        for (slot, row) in orphans {
            let is_for_own = match row.state == State::Newcomer {
                true => self.take_unread(slot, own)?,
                false => self.take_ring(slot, own)?,
            };
            inherited.extend(is_for_own.then_some(slot));
        }
        Ok(inherited)
    }

    /// Stops the packets into the ring of a member that is gone, and cuts that member's lifeline.
    /// Returns whether `own` shall read the ring: it shall not if another member began to read the
    /// ring before the ring's owner died. `own` may not read the ring if the ring's class still has
    /// living members and `own` is of another class. In this case the function leaves the ring
    /// alone, cuts the lifeline and returns false.
    fn take_ring(&mut self, slot: Slot, own: u64) -> io::Result<bool> {
        let row = self.table.row(slot);
        if !classes::may_inherit(self.table, own, &row) {
            self.kernel.step();
            self.kernel.cut(row.cookie)?;
            self.kernel.step();
            let taker = row.cookie;
            self.table.set_row(slot, &Row { taker, ..row });
            return Ok(false);
        }
        self.kernel.step();
        self.kernel.leave(slot)?;
        self.kernel.step();
        self.kernel.refuse(row.cookie)?;
        self.kernel.step();
        self.kernel.cut(row.cookie)?;
        self.kernel.step();
        let is_read = unread::is_read(self.table, &row);
        let taker = if is_read { row.taker } else { own };
        let state = State::TakenOver;
        self.table.set_row(
            slot,
            &Row {
                state,
                taker,
                ..row
            },
        );
        Ok(!is_read)
    }

    /// Members that `own` shall look after: they are gone or not read, and no living member reads
    /// their rings.
    fn orphans_for(&self, own: u64, now_ns: u64) -> Vec<(Slot, Row)> {
        let table = self.table;
        // True if the lead has just ended the wait for the member's successor, so that the member's
        // buckets are not given away yet.
        let is_new = |row: &Row| row.keeps() && classes::may_inherit(table, own, row);
        let is_for_it = |(_, row): &(Slot, Row)| match row.state {
            State::Dead => !is_new(row) && classes::until_due(table, own, row, now_ns) == Some(0),
            State::TakenOver => {
                !classes::has_taker(table, row) && classes::may_inherit(table, own, row)
            }
            State::Newcomer => unread::is_for(table, own, row),
            State::Free | State::Live | State::Vacant | State::Awaited => false,
        };
        table.rows().filter(is_for_it).collect()
    }

    /// Gives away the buckets of dead members whose rings `own` shall read.
    fn share_out(&mut self, own: u64, now_ns: u64) {
        self.give_away(classes::to_share_out(self.table, own, now_ns));
    }

    /// Gives away the buckets of the dead members in the class of `own`, even if other members read
    /// the rings of these dead members.
    pub(crate) fn give_up_shares(&mut self, own: u64) -> io::Result<()> {
        self.repair()?;
        let is_one =
            |(_, row): &(Slot, Row)| row.keeps() && classes::is_of_class(self.table, own, row);
        let dead = self.table.rows().filter(is_one).collect();
        self.give_away(dead);
        Ok(())
    }

    fn give_away(&mut self, dead: Vec<(Slot, Row)>) {
        if dead.is_empty() {
            return;
        }
        self.note(Journal::Balance);
        for (slot, row) in dead {
            self.kernel.step();
            self.table.set_row(slot, &Row { weight: 0, ..row });
        }
        self.finish_balance();
    }

    /// Marks members whose lifelines have hung up as gone. Each of these members keeps its buckets
    /// until another member takes its ring and gives the buckets away. Returns the sockets of
    /// living members.
    fn mark_gone(&mut self, own: u64) -> io::Result<Vec<u64>> {
        let living = self.kernel.living()?;
        let is_gone = |(slot, row): (Slot, Row)| {
            let is_member = matches!(row.state, State::Live | State::Newcomer);
            let lives = row.cookie == own || living.contains(&row.cookie);
            (is_member && !lives).then_some((slot, succession::left_by(self.table, &row)))
        };
        let gone: Vec<(Slot, Row)> = self.table.rows().filter_map(is_gone).collect();
        for (slot, row) in gone {
            self.change_row(slot, &row);
        }
        Ok(living)
    }

    /// Whether a member without a share may take its share now. The member must wait while another
    /// member still has to take over the ring and buckets of a member that is gone.
    pub(crate) fn may_begin(&mut self, own: u64) -> io::Result<bool> {
        self.repair()?;
        let slot = self.table.slot_of(own);
        if slot.is_none_or(|slot| self.table.row(slot).state != State::Newcomer) {
            return Ok(true);
        }
        self.mark_gone(own)?;
        let now_ns = self.kernel.now_ns();
        Ok(!classes::leaves_to_others(self.table, own, now_ns))
    }

    fn has_owner(&self, class: u8) -> bool {
        !classes::shares(self.table, class).is_empty()
    }

    fn balance(&mut self) {
        self.note(Journal::Balance);
        self.finish_balance();
    }

    /// Moves as few buckets as possible, so that each owner has its share of its class's buckets.
    /// In a group that follows another, each bucket goes to the member that owns it in the lead.
    fn finish_balance(&mut self) {
        let lead = self.lead.and_then(Lead::of);
        let beside = self.kernel.beside().and_then(Beside::of);
        let classes = self.table.used_classes();
        for &class in &classes {
            if !self.has_owner(class) {
                self.enlist(class);
            }
        }
        if let Some(lead) = &lead {
            self.end_waits_as(lead);
            self.enlist_as(lead);
        }
        if classes.iter().any(|&class| self.has_owner(class)) {
            self.move_all(&classes, lead.as_ref(), beside.as_ref());
        }
        if let Some(beside) = beside {
            self.note_beside(&beside);
        }
        if let Some(lead) = lead {
            self.kernel.step();
            lead.note_followed_by(self.table);
        }
        self.finish();
    }

    /// Moves the buckets and ranks of all classes. A class without members has no ranks, so no
    /// member gets the packets of this class.
    fn move_all(&mut self, classes: &[u8], lead: Option<&Lead>, beside: Option<&Beside>) {
        let mut moved = 0;
        for &class in classes {
            let shares = classes::shares(self.table, class);
            moved += match self.lead {
                _ if shares.is_empty() => {
                    self.set_ranks(class);
                    0
                }
                None => self.move_buckets(class, &shares, beside),
                Some(_) => self.move_as(class, lead, &shares),
            };
        }
        let everybody = classes::of_everybody(self.table);
        self.set_ranks_of(self.table.everybody(), &everybody);
        self.table.note_moved(moved, self.kernel.now_ns());
    }

    /// Moves buckets of a class, and returns how many have moved. A dead member whose ring nobody
    /// has taken keeps its buckets. If another member got the buckets now, it would read later
    /// packets of a flow before the ring's packets are read.
    fn move_buckets(&mut self, class: u8, shares: &[Share], beside: Option<&Beside>) -> usize {
        let part = self.table.part(class);
        let stands_beside = self.kernel.beside().is_some();
        let mut moves = match stands_beside {
            true => beside::plan(self.table, class, shares, beside),
            false => rounds::plan(self.table, part, shares),
        };
        let kept = match stands_beside {
            true => classes::kept_beside(self.table, class),
            false => classes::kept(self.table, class),
        };
        let owners = part.owners(&kept);
        moves.retain(|step| owners[step.bucket].is_none());
        for step in &moves {
            self.kernel.step();
            part.set_owner(step.bucket, step.to);
        }
        match stands_beside {
            true => self.set_ranks_beside(class, beside),
            false => self.set_ranks(class),
        }
        moves.len()
    }

    /// Gives ranks to all members of a class that have a share, including the dead members that
    /// keep theirs, and to no other members.
    fn set_ranks(&mut self, class: u8) {
        self.set_ranks_of(self.table.part(class), &classes::holders(self.table, class));
    }

    fn set_ranks_of(&mut self, part: Part<'_>, shares: &[Share]) {
        let ranks = classes::ranks(part, shares);
        self.kernel.step();
        part.set_ranks(&ranks);
    }

    fn set_state(&mut self, slot: Slot, state: State) {
        let row = self.table.row(slot);
        self.change_row(slot, &Row { state, ..row });
    }

    /// Writes a slot's row, whose new state begins now.
    fn change_row(&mut self, slot: Slot, row: &Row) {
        self.kernel.step();
        let since_ns = self.kernel.now_ns();
        self.table.set_row(slot, &Row { since_ns, ..*row });
    }

    fn note(&mut self, journal: Journal) {
        self.kernel.step();
        self.table.set_journal(journal);
    }

    /// Ends a change that is complete: shows the BPF program the members' sticky ids, raises the
    /// generation and clears the journal.
    fn finish(&mut self) {
        self.kernel.step();
        self.table.open_seats();
        self.kernel.step();
        self.table.set(
            at::GENERATION,
            self.table.get(at::GENERATION).wrapping_add(1),
        );
        self.note(Journal::Nothing);
    }
}

#[cfg(any(test, feature = "fuzz"))]
mod memory;
#[cfg(any(test, feature = "fuzz"))]
pub mod hostile;
#[cfg(test)]
mod tests;
